"""Three complete updates equal PyTorch's (``tools/oracles/torch_updates.py``), number by number."""

from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import IQL, TD3BC
from neorl_agents.networks import MLP
from neorl_core import (
    Channel,
    DataStatistics,
    FieldStatistics,
    Spec,
    Transition,
    as_arrays,
)

FIXTURE = Path(__file__).parent / "fixtures" / "torch_updates.npz"
SMALL = {"hidden": (8, 8), "batch_size": 16, "reward_scale": "none"}
CASES = {
    "td3_bc": TD3BC(**SMALL),
    "iql_original": IQL(decay_updates=3, **SMALL),
    "iql_corl": IQL(decay_updates=3, variant="corl", **SMALL),
}
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(scope="module")
def stored() -> dict[str, np.ndarray]:
    with np.load(FIXTURE) as file:
        return dict(file)


def part(stored: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays under ``prefix/``, without it."""
    cut = len(prefix) + 1
    return {name[cut:]: array for name, array in stored.items() if name.startswith(prefix + "/")}


def network(like: MLP, tensors: dict[str, np.ndarray], prefix: str = "") -> MLP:
    """``like`` with PyTorch's weights, which are stored transposed."""
    weights = [jnp.asarray(tensors[f"{prefix}{i}.weight"].T, jnp.float32) for i in (0, 2, 4)]
    biases = [jnp.asarray(tensors[f"{prefix}{i}.bias"], jnp.float32) for i in (0, 2, 4)]
    return MLP(tuple(weights), tuple(biases), like.activation, like.output)


def twins(like: MLP, tensors: dict[str, np.ndarray]) -> MLP:
    both = [network(like, tensors, prefix) for prefix in ("first.", "second.")]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *both)


def filled(state: Any, tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    """The networks of a state with the stored parameters, by name of the field."""
    values: dict[str, Any] = {}
    for name in ("critics", "target_critics"):
        if part(tensors, name):
            values[name] = twins(state.critics, part(tensors, name))
    if part(tensors, "value"):
        values["value"] = network(state.value, part(tensors, "value"))
    for name in ("actor", "target_actor"):
        actor = part(tensors, name)
        if "log_std" in actor:
            mean = network(state.actor.mean, actor, "mean.")
            values[name] = type(state.actor)(mean, jnp.asarray(actor["log_std"], jnp.float32))
        elif actor:
            values[name] = network(state.actor, actor)
    return values


def started(algorithm: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A state with PyTorch's initial weights and the scaling of its rows."""
    box = tuple(Channel(f"u{i}", "1", -1.0, 1.0) for i in range(2))
    ranges = [float(span) / 2 for span in arrays["span"]]
    channels = tuple(Channel(f"x{i}", "1", -half, half) for i, half in enumerate(ranges))
    spec = Spec(obs=channels, action=box, cost=(), dt=1.0, horizon=10)
    one = np.float32(1)
    scalar = FieldStatistics(one, one, one, one, one)
    obs = FieldStatistics(one, arrays["mean"], arrays["std"], arrays["mean"], arrays["mean"])
    statistics = DataStatistics(obs, scalar, scalar, scalar, scalar, scalar)
    state = algorithm.init(spec, statistics, jax.random.key(0))
    networks = filled(state, part(arrays, "before"))
    networks["target_critics"] = networks["critics"]
    if "target_actor" in type(state).__dataclass_fields__:
        networks["target_actor"] = networks["actor"]
    fields = {name: getattr(state, name) for name in type(state).__dataclass_fields__}
    return type(state)(**(fields | networks))


@pytest.mark.parametrize("name", CASES)
def test_updates_equal_those_of_torch(name, stored, monkeypatch):
    algorithm, arrays = CASES[name], part(stored, name)
    state = started(algorithm, arrays)
    noise = arrays["noise"].reshape(3, -1, 2)

    def update(algorithm, state, batch, noise):
        monkeypatch.setattr(jax.random, "normal", lambda key, shape, dtype: noise.reshape(shape))
        return algorithm.update(state, batch, jax.random.key(0))

    compiled, losses = jax.jit(update), []
    for i in range(3):
        columns = {
            field: jnp.asarray(arrays[field][i])
            for field in ("obs", "action", "reward", "next_obs", "terminated")
        }
        batch = Transition(**columns)
        state, metrics = compiled(as_arrays(algorithm), state, batch, jnp.asarray(noise[i]))
        losses.append(metrics)
    for field, expected in filled(state, part(arrays, "after")).items():
        chex.assert_trees_all_close(getattr(state, field), expected, **TOLERANCE)
    theirs = arrays["losses"].reshape(3, 3)
    for ours, row in zip(losses, theirs, strict=True):
        if name == "td3_bc":
            np.testing.assert_allclose(ours["critic_loss"], row[:2].mean(), **TOLERANCE)
            np.testing.assert_allclose(ours["actor_loss"], row[2], **TOLERANCE)
        else:
            got = [ours["value_loss"], ours["actor_loss"], ours["critic_loss"]]
            np.testing.assert_allclose(got, row, **TOLERANCE)


def test_the_stored_updates_moved_the_parameters(stored):
    for name in CASES:
        before, after = part(stored, f"{name}/before"), part(stored, f"{name}/after")
        assert all(np.abs(after[key] - before[key]).max() > 1e-4 for key in before)
