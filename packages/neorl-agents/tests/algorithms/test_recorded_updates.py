"""A hundred updates in float64 equal those of the code that published results came from.

The scripts in ``tools/studies/oracles`` recorded the numbers of CORL's classes
(``corl_updates.py``), of published JAX code (``published_jax_updates.py``, ``flow_updates.py``),
and of OSRL, CAPS and FISOR (``constrained_updates.py``, ``safe_updates.py``), on the same rows,
batches and noise. What they take out is in their docstrings and in those of the learners; besides,
the test gives our learners CORL's scale of the observations (``std + 1e-3``), for ours is at least
a thousandth of the measuring range. Learners of sequences are compared in
``policies/test_sequence_policy.py``, those on rollouts in a model in
``rollouts/test_recorded_rollout_updates.py``.
"""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import (
    AWAC,
    BC,
    CAPS,
    CPQ,
    CQL,
    EDAC,
    FISOR,
    FQL,
    IQL,
    SACN,
    TD3BC,
    XQL,
    BCQLag,
    CalQL,
    COptiDICE,
    ReBRAC,
)  # fmt: skip
from neorl_agents.policies import Preparation, prepare
from neorl_agents.sampling import Batch, BestEpisodes
from neorl_agents.testing import sized
from neorl_core import (
    Affine,
    Channel,
    CostChannel,
    DataStatistics,
    FieldStatistics,
    Spec,
    Transition,
)

FIXTURES = Path(__file__).parent / "fixtures"
UPDATES, BATCH, MASKED, ACT, N = 100, 32, 8, 2, 10
COLUMNS = (
    "obs", "action", "reward", "cost", "next_obs", "next_action", "terminated", "truncated",
)  # fmt: skip
SHARED = {"batch_size": BATCH, "reward_scale": "none"}
TWO, THREE = SHARED | {"hidden": (12, 12)}, SHARED | {"hidden": (12, 12, 12)}
SOFT = {"actor_learning_rate": 3e-4, "temperature_learning_rate": 3e-4}
GAINS = {"kp": 0.1, "ki": 0.003, "kd": 0.001, "unit": "cost"}
LAGRANGE = {"lagrange": True, "density_correction": False, "entropy_backup": True}
# In the order in which ours draws, the draws of the other: table, its number, rest of the shape.
PLAIN = ("normal", 0, (ACT,))
CONSERVATIVE = (
    ("normal", 1, (ACT,)), ("uniform", 2, (N, ACT)), ("normal", 3, (N, ACT)),
    ("normal", 4, (N, ACT)), PLAIN,
)  # fmt: skip
FLOW = (PLAIN, ("normal", 1, (ACT,)), ("uniform", 3, (1,)), ("normal", 2, (ACT,)))
LATENT, LATENTS = (2 * ACT,), (4, 2 * ACT)
BATCH_CONSTRAINED = (
    ("normal", 0, LATENT), ("normal", 1, LATENTS), ("normal", 2, LATENTS), ("normal", 3, LATENT),
)  # fmt: skip
PENALISED = (
    ("normal", 0, LATENT), ("normal", 1, (4, ACT)),
    *(("normal", number, (ACT,)) for number in (2, 3, 4)),
)  # fmt: skip
OF_BCQ = {"model_loss": "loss_vae", "critic_loss": "critic_loss", "cost_loss": "cost_critic_loss"}
OF_BCQ |= {"multiplier": "lagrangian"}
THRICE = tuple(("normal", number, (ACT,)) for number in range(3))
CASES: dict[str, tuple[Any, tuple[Any, ...], dict[str, str]]] = {
    "bc": (sized(BC(), batch_size=BATCH, hidden=(12, 12)), (), {"actor_loss": "actor_loss"}),
    "td3_bc": (
        sized(TD3BC(), **TWO),
        (PLAIN,),
        {"critic_loss": "critic_loss", "actor_loss": "actor_loss"},
    ),
    "iql": (
        sized(IQL(), expectile=0.75, variant="corl", decay_updates=UPDATES, **TWO),
        (),
        {"value_loss": "value_loss", "critic_loss": "q_loss", "actor_loss": "actor_loss"},
    ),
    "iql_original": (
        sized(IQL(), decay_updates=UPDATES, **TWO),
        (),
        {name: name for name in ("value_loss", "critic_loss", "actor_loss")},
    ),
    "xql": (
        sized(XQL(), decay_updates=UPDATES, **TWO),
        (),
        {name: name for name in ("value_loss", "critic_loss", "actor_loss")},
    ),
    "awac": (
        sized(AWAC(), variant="corl", **THREE),
        THRICE[:2],
        {"critic_loss": "critic_loss", "actor_loss": "actor_loss"},
    ),
    "rebrac": (
        sized(ReBRAC(), actor_weight=0.3, critic_weight=0.5, **THREE),
        (PLAIN,),
        {"critic_loss": "critic_loss"},
    ),
    "cql": (sized(CQL(), **SOFT, **THREE), CONSERVATIVE, {"actor_loss": "policy_loss"}),
    "cql_lagrange": (
        sized(
            CQL(), conservative_weight=5.0, gap=2.0, sample_temperature=0.7,
            **LAGRANGE, **SOFT, **THREE,
        ),
        CONSERVATIVE,
        {"actor_loss": "policy_loss", "temperature": "alpha"},
    ),
    "cal_ql": (sized(CalQL(), **SOFT, **THREE), CONSERVATIVE, {"actor_loss": "policy_loss"}),
    "sac_n": (
        sized(SACN(), n_critics=4, **THREE),
        THRICE,
        {"critic_loss": "critic_loss", "temperature": "alpha"},
    ),
    "edac": (
        sized(EDAC(), n_critics=4, **THREE),
        THRICE,
        {"critic_loss": "critic_loss", "actor_loss": "actor_loss", "temperature": "alpha"},
    ),
    "fql": (
        sized(FQL(), flow_steps=4, normalised=False, **TWO),
        FLOW,
        {"critic_loss": "critic_loss", "flow_loss": "flow_loss", "distance": "distill_loss"},
    ),
    "fql_normalised": (
        sized(FQL(), flow_steps=4, aggregate="min", alpha=0.3, **TWO),
        FLOW,
        {"critic_loss": "critic_loss", "flow_loss": "flow_loss", "distance": "distill_loss"},
    ),
    "bcq_lag": (
        sized(BCQLag(), n_samples=4, cost_of="samples", **GAINS, **TWO), BATCH_CONSTRAINED, OF_BCQ
    ),
    "bcq_lag_osrl": (
        sized(BCQLag(), n_samples=4, costly="smaller", cost_of="samples", **GAINS, **TWO),
        BATCH_CONSTRAINED,
        OF_BCQ,
    ),
    "caps": (
        sized(CAPS(), n_heads=3, **TWO),
        (),
        {"value_loss": "reward_value_loss", "cost_value_loss": "cost_value_loss"}
        | {"actor_loss": "actor_loss"},
    ),
    "cpq": (
        sized(CPQ(), n_samples=4, **TWO),
        PENALISED,
        {"model_loss": "loss_vae"}
        | {name: name for name in ("cost_loss", "critic_loss", "actor_loss")},
    ),
    "coptidice": (
        sized(COptiDICE(), **TWO),
        (),
        {"nu_loss": "nu_loss", "actor_loss": "actor_loss"},
    ),
    "fisor": (
        sized(FISOR(), **TWO),
        (),
        {"cost_value_loss": "safe_value_loss", "cost_loss": "safe_critic_loss"}
        | {name: name for name in ("value_loss", "critic_loss", "actor_loss", "weighted_rows")},
    ),
}  # fmt: skip
FILES = dict.fromkeys(("rebrac", "iql_original", "xql"), "published_jax_updates")
FILES |= dict.fromkeys(("fql", "fql_normalised"), "flow_updates")
FILES |= dict.fromkeys(("bcq_lag", "bcq_lag_osrl", "caps"), "constrained_updates")
FILES |= dict.fromkeys(("cpq", "coptidice", "fisor"), "safe_updates")
LIMIT = CostChannel("c", "1", 0.03125, "episode")
# Actions are safe by it at first, then some of them, and none in the end.
WIDE_LIMIT = replace(LIMIT, limit=0.5)


@cache
def stored(file: str) -> dict[str, np.ndarray]:
    with np.load(FIXTURES / f"{file}.npz") as arrays:
        return dict(arrays)


def log() -> dict[str, np.ndarray]:
    arrays = stored("corl_updates") | {"log/cost": stored("constrained_updates")["log/cost"]}
    return {name[4:]: values for name, values in arrays.items() if name.startswith("log/")}


def part(case: str, which: str, file: str = "") -> dict[str, np.ndarray]:
    """The arrays of one part of a case by name."""
    arrays = stored(file or FILES.get(case, "corl_updates"))
    flat, start, named = arrays[f"{case}/{which}"], 0, {}
    for name, shape in json.loads(str(arrays["names"]))[f"{case}/{which}"].items():
        size = int(np.prod(shape))
        named[name] = flat[start : start + size].reshape(shape)
        start += size
    return named


def named_leaves(state: Any) -> dict[str, Any]:
    """Leaves of the parameters by name, and those of the targets behind ``target_``."""
    slow = {f"target_{name}": network for name, network in state.targets.items()}
    paths, _ = jax.tree_util.tree_flatten_with_path(state.parameters | slow)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in paths}


@cache
def prepared_as_there(
    cost: tuple[CostChannel, ...] = (),
) -> tuple[Spec, DataStatistics, Preparation]:
    """A specification, and CORL's maps of observations."""
    rows = log()
    channels = tuple(Channel(f"x{i}", "1", -50.0, 50.0) for i in range(rows["obs"].shape[1]))
    box = tuple(Channel(f"u{i}", "1", -1.0, 1.0) for i in range(ACT))
    spec = Spec(obs=channels, action=box, cost=cost, dt=1.0, horizon=10)
    one = np.float32(1)
    scalar = FieldStatistics(one, one, one, one, one)
    obs = FieldStatistics(one, rows["mean"], rows["scale"], rows["mean"], rows["mean"])
    ones = jax.tree.map(lambda x: np.full(len(cost), x), scalar)
    statistics = DataStatistics(obs, scalar, scalar, ones, scalar, scalar)
    preparation = jax.tree.map(wide, prepare(spec, statistics, "none"))
    return spec, statistics, replace(preparation, obs=Affine(rows["mean"], rows["scale"]))


def started(learner: Any, before: dict[str, np.ndarray]) -> Any:
    """A float64 state with the recorded weights, each in its place; moments of zero."""
    limit = WIDE_LIMIT if isinstance(learner, CPQ) else LIMIT
    spec, statistics, preparation = prepared_as_there((limit,) if learner.keeps_limits else ())
    state = jax.eval_shape(lambda key: learner.init(spec, statistics, key), jax.random.key(0))
    zero = jax.tree.map(lambda leaf: wide(np.zeros(leaf.shape, leaf.dtype)), state)
    leaves = named_leaves(replace(zero, targets={}))
    assert set(before) <= set(leaves)
    filled = [wide(before.get(name, leaf)) for name, leaf in leaves.items()]
    parameters = jax.tree.unflatten(jax.tree.structure(zero.parameters), filled)
    targets = {name: parameters[name] for name in zero.targets}
    return replace(zero, parameters=parameters, targets=targets, preparation=preparation)


def wide(x: Any) -> np.ndarray:
    x = np.asarray(x)
    return x.astype(np.float64) if x.dtype.kind == "f" else x


def batches(learner: Any) -> Any:
    """The recorded batches and masked rows, leading axes update, batch of an update, row."""
    rows, per = log(), learner.batches_per_update
    chosen = rows["chosen"][: per * UPDATES].reshape(UPDATES, per, BATCH)

    def column(name: str) -> np.ndarray:
        values = wide(rows[name])[chosen]
        if name == "truncated" and "next_action" in learner.fields:
            # The recorded code knows no truncation and uses the next action there too.
            values = np.zeros_like(values)
        spare = values[:, :, -MASKED:]
        return np.concatenate([values, ~spare if spare.dtype == bool else 3 * spare + 1], axis=2)

    columns = {name: column(name) for name in COLUMNS if name in learner.fields}
    mask = np.broadcast_to(np.arange(BATCH + MASKED) < BATCH, (UPDATES, per, BATCH + MASKED))
    drawn = Transition(**{"reward": None} | columns, mask=mask)
    calibrated = learner.fields[-1:] == ("truncated",)
    return Batch(drawn, mc_return=column("mc_return")) if calibrated else drawn


def draws(learner: Any, order: tuple[Any, ...]) -> list[np.ndarray]:
    """The recorded noise in the order in which our learner asks for it, masked rows behind it."""
    rows, per, made = log(), learner.batches_per_update, []
    for table, number, shape in order:
        values, size = rows[table].astype(np.float64), BATCH * int(np.prod(shape))
        starts = 1543 * np.arange(per * UPDATES) + 389 * number
        indices = (starts[:, None] + np.arange(size)) % len(values)
        noise = values[indices].reshape(UPDATES, per, BATCH, *shape)
        noise = np.concatenate([noise, noise[:, :, :MASKED]], axis=2)
        made.append(noise.reshape(UPDATES, per * (BATCH + MASKED), *shape))
    return made


def run(learner: Any, state: Any, order: tuple[Any, ...]) -> Any:
    """All updates in one program, in which JAX's generators give the recorded noise."""

    def update(state: Any, one: Any) -> Any:
        batch, noise = one
        left = iter(noise)

        def drawn(key: Any, shape: tuple[int, ...], *_: Any) -> Any:
            values = jnp.asarray(next(left))
            return values if values.shape == shape else one_a_sample(values, shape)(key)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jax.random, "normal", drawn)
            patch.setattr(jax.random, "uniform", drawn)
            after = learner.update(state, batch, jax.random.key(0))
        assert next(left, None) is None
        return after

    with jax.enable_x64(True):
        learner = jax.tree.map(wide, learner)
        inputs = (batches(learner), draws(learner, order))
        return jax.device_get(jax.jit(lambda s, i: jax.lax.scan(update, s, i))(state, inputs))


def one_a_sample(values: Any, shape: tuple[int, ...]) -> Any:
    """The draws of a learner that maps over keys: those of one sample for each key."""

    @jax.custom_batching.custom_vmap
    def draw(key: Any) -> Any:
        # Traced for its shape alone.
        return jnp.zeros(shape)

    @draw.def_vmap
    def all_draws(size: int, batched: Any, key: Any) -> Any:
        assert values.shape == (shape[0], size, *shape[1:])
        return jnp.swapaxes(values, 0, 1), True

    return draw


# Options of learners of which another case runs by day.
BY_NIGHT = {"cql_lagrange", "fql_normalised", "bcq_lag_osrl"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.nightly] * (n in BY_NIGHT)) for n in CASES]
)
def test_a_hundred_updates_are_those_of_the_published_code(name):
    learner, order, losses = CASES[name]
    after, metrics = run(learner, started(learner, part(name, "before")), order)
    leaves, recorded = named_leaves(after), part(name, "after")
    moved = {key: recorded[key] - part(name, "before")[key] for key in part(name, "before")}
    assert all(np.abs(change).max() > 1e-4 for key, change in moved.items() if "log_mu" not in key)
    for key, expected in recorded.items():
        assert leaves[key].dtype == np.float64
        worst = np.abs(leaves[key] - expected).max() / np.abs(expected).max()
        assert worst < 1e-7, (key, worst)
    theirs = part(name, "loss")
    for ours, name_there in losses.items():
        values = theirs[name_there].reshape(UPDATES, -1).mean(1)
        np.testing.assert_allclose(metrics[ours], values, rtol=1e-7, err_msg=ours)


def test_the_best_episodes_are_those_of_corl():
    rows = log()
    columns = {name: rows[name] for name in ("reward", "terminated", "truncated")}
    whole = np.flatnonzero(rows["terminated"] | rows["truncated"])[-1] + 1
    numbered = Transition(np.arange(len(rows["obs"]))[:, None], rows["action"], **columns)
    numbered = jax.tree.map(lambda column: column[:whole], numbered)
    episodes = int((numbered.terminated | numbered.truncated).sum())
    # CORL rounds the number of episodes down, ours up.
    kept = BestEpisodes(int(0.25 * episodes) / episodes).tables(numbered)
    np.testing.assert_array_equal(np.sort(kept.obs[:, 0]), rows["kept"])
