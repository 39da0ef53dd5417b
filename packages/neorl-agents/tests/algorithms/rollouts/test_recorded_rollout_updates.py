"""A hundred updates in float64 of learners on rollouts equal those of OfflineRL-Kit.

``tools/studies/oracles/rollouts/rollout_updates.py`` recorded them, and says what it takes out of
that code. MOReL has MOPO's update; its own part is in the rewards of predicted rows.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import ALGORITHMS, COMBO, MOBILE, MOPO, RAMBO
from neorl_agents.models import DynamicsModel
from neorl_agents.testing import sized

from ..test_recorded_updates import (
    ACT,
    BATCH,
    MASKED,
    TWO,
    UPDATES,
    batches,
    log,
    named_leaves,
    part,
    prepared_as_there,
    wide,
)

OBS, MEMBERS, SAMPLES = 5, 3, 2
MODEL = sized(
    DynamicsModel(members=MEMBERS, linear=False),
    hidden=(12,), batch_size=BATCH, reward_scale="none",
)  # fmt: skip
RATES = {"actor_learning_rate": 1e-4, "temperature_learning_rate": 1e-4}
LOSSES = {"critic_loss": "critics", "actor_loss": "actor"}
# In the order in which ours draws: table, number of the draw there, rows, rest of the shape.
NEXT, ACTOR = ("normal", 0, BATCH, (ACT,)), ("normal", 1, BATCH, (ACT,))
CONSERVATIVE = (
    NEXT, ("uniform", 1, BATCH, (1, ACT)), ("normal", 2, BATCH, (1, ACT)),
    ("normal", 3, BATCH, (1, ACT)), ("normal", 4, BATCH, (ACT,)),
)  # fmt: skip
HALF = BATCH // 2
CASES: dict[str, tuple[Any, tuple[Any, ...], dict[str, str]]] = {
    "mopo": (sized(MOPO(), model=MODEL, share=0.25, **RATES, **TWO), (NEXT, ACTOR), LOSSES),
    "mobile": (
        sized(
            MOBILE(), model=MODEL, share=0.25, n_samples=SAMPLES, penalty_weight=0.7, **RATES, **TWO
        ),
        (
            ("normal", 0, BATCH, (SAMPLES, MEMBERS, OBS)),
            ("normal", 1, BATCH, (SAMPLES, MEMBERS, ACT)),
            ("normal", 2, BATCH, (ACT,)),
            ("normal", 3, BATCH, (ACT,)),
        ),
        LOSSES,
    ),
    "combo": (
        sized(
            COMBO(), model=MODEL, share=0.5, n_samples=1, conservative_weight=0.6, **RATES, **TWO
        ),
        CONSERVATIVE,
        LOSSES,
    ),
    "combo_model": (
        sized(
            COMBO(states="model"), model=MODEL, share=0.5, n_samples=1, conservative_weight=0.6,
            **RATES, **TWO,
        ),
        CONSERVATIVE,
        LOSSES,
    ),
    "rambo": (
        # The recorded adversary has a weight of 0.3 beside sums, where ours is beside means.
        sized(
            RAMBO(), model=MODEL, share=0.5, adversarial_weight=0.3 * 2 / (OBS + 1), **RATES, **TWO
        ),
        (
            NEXT, ACTOR, ("uniform", 2, HALF, ()), ("normal", 3, HALF, (OBS,)),
            ("normal", 4, HALF, (ACT,)),
        ),
        LOSSES | {"model_loss": "model"},
    ),
}  # fmt: skip


def filled(tree: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A tree with recorded arrays, each in its place."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    assert set(arrays) <= set(names)
    both = zip(names, leaves, strict=True)
    return structure.unflatten([wide(arrays.get(name, leaf)) for name, (_, leaf) in both])


def started(learner: Any, before: dict[str, np.ndarray]) -> Any:
    """A float64 state with the recorded weights of learner and model; moments of zero."""
    spec, statistics, preparation = prepared_as_there()

    def init(key: Any) -> Any:
        fitted = learner.fitted_model().init(spec, statistics, key)
        return learner.init(spec, statistics, key, context={"model": fitted})

    state = jax.eval_shape(init, jax.random.key(0))
    state = jax.tree.map(lambda leaf: wide(np.zeros(leaf.shape, leaf.dtype)), state)
    model = state.context["model"]
    ones = {"predicted": np.ones(OBS), "ends": np.ones(())}
    structure = replace(model.parameters["structure"], **ones)
    own = {name: x for name, x in before.items() if name.partition("/")[0] in state.parameters}
    members = {name: x for name, x in before.items() if name not in own}
    parameters = filled({**model.parameters, "structure": structure}, members)
    model = replace(model, parameters=parameters, preparation=preparation)
    parameters = filled(state.parameters, own)
    return replace(
        state, parameters=parameters, targets={name: parameters[name] for name in state.targets},
        preparation=preparation, context={"model": model},
    )  # fmt: skip


def draws(order: tuple[Any, ...]) -> list[np.ndarray]:
    """The recorded draws of every update, masked rows behind them."""
    made = []
    for table, number, rows, shape in order:
        values = log()[table].astype(np.float64)
        start = 1543 * np.arange(UPDATES)[:, None] + 389 * number
        indices = (start + np.arange(rows * int(np.prod(shape)))) % len(values)
        drawn = values[indices].reshape(UPDATES, rows, *shape)
        made.append(np.concatenate([drawn, drawn[:, :MASKED]], axis=1))
    return made


def run(learner: Any, state: Any, order: tuple[Any, ...]) -> Any:
    """All updates in one program, in which JAX's generators give the recorded draws."""

    def update(state: Any, one: Any) -> Any:
        batch, recorded = one
        left = iter(recorded)

        def drawn(key: Any, shape: tuple[int, ...], *_: Any) -> Any:
            values = next(left)
            # Draws of several members or samples have the rows behind these.
            return values if values.shape == shape else jnp.moveaxis(values, 0, -2).reshape(shape)

        def members(key: Any, shape: tuple[int, ...], low: int, high: int) -> Any:
            share = (next(left) + 1) / 2
            return jnp.clip((share * high).astype(int), low, high - 1)

        with pytest.MonkeyPatch.context() as patch:
            for name, generator in (("normal", drawn), ("uniform", drawn), ("randint", members)):
                patch.setattr(jax.random, name, generator)
            after = learner.update(state, batch, jax.random.key(0))
        assert next(left, None) is None
        return after

    with jax.enable_x64(True):
        learner = jax.tree.map(wide, learner)
        inputs = (batches(learner), draws(order))
        return jax.device_get(jax.jit(lambda s, i: jax.lax.scan(update, s, i))(state, inputs))


def of_case(name: str, which: str) -> dict[str, np.ndarray]:
    return part(name, which, "rollout_updates")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.nightly] * (n == "combo_model")) for n in CASES]
)
def test_a_hundred_updates_are_those_of_offlinerl_kit(name):
    """Row N15: a learner in a model makes the updates of the published code."""
    learner, order, losses = CASES[name]
    before, recorded = of_case(name, "before"), of_case(name, "after")
    after, metrics = run(learner, started(learner, before), order)
    leaves = named_leaves(after)
    assert all(
        np.abs(recorded[key] - before[key]).max() > 1e-4 for key in recorded if key in before
    )
    for key, expected in recorded.items():
        assert leaves[key].dtype == np.float64
        worst = np.abs(leaves[key] - expected).max() / np.abs(expected).max()
        assert worst < 1e-7, (key, worst)
    for ours, name_there in losses.items():
        theirs = of_case(name, "loss")[name_there]
        np.testing.assert_allclose(metrics[ours], theirs, rtol=1e-7, err_msg=ours)


@pytest.mark.parametrize(
    ("name", "other", "parts"),
    [
        ("morel", "mopo", ("fresh", "learn", "critic_step", "reward")),
        ("bc_safe", "bc", ("fresh", "learn", "policy")),
    ],
)
def test_it_has_the_update_of_another(name, other, parts):
    """These choose or change rows, and are no further methods of learning."""
    kinds = ALGORITHMS[name], ALGORITHMS[other]
    assert all(getattr(kinds[0], part) is getattr(kinds[1], part) for part in parts)
