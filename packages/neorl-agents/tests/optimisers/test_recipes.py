"""The recipes field by field against the source's table, and as steps against plain optax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from neorl_agents import DQN, PPO, SAC, TD3
from neorl_agents.optimisers import OPTIMISERS, RECIPES, recipe_chain
from neorl_core import InputError

# By rows of the source: parts, rate, clip before the optimiser, epsilon, whether the rate falls.
TABLE = {
    "ppo": ([""], 2.5e-4, {"": 0.5}, 1e-5, True),
    "sac": (
        ["actor", "critics", "log_temperature"], 3e-4,
        {"actor": 1.0, "critics": 1.0, "log_temperature": 0.0}, 1e-8, False,
    ),
    "td3": (["actor", "critics"], 3e-4, {"actor": 0.0, "critics": 0.0}, 1e-8, False),
    "dqn": ([""], 6.25e-5, {"": 10.0}, 1.5e-4, False),
}  # fmt: skip
LEARNERS = {"ppo": PPO(), "sac": SAC(), "td3": TD3(), "dqn": DQN()}
WEIGHTS = {name: jnp.asarray([1.0, -2.0]) for name in ("actor", "critics", "log_temperature")}


def weights_of(name):
    parts = [part for part in RECIPES[name].parts if part]
    return {part: WEIGHTS[part] for part in parts} if parts else WEIGHTS


def stepped(chain, weights, sizes):
    """Weights after a step down a gradient of each size."""
    step = jax.jit(chain.update)
    state, path = chain.init(weights), []
    for size in sizes:
        gradient = jax.tree.map(lambda x, size=size: size * x, weights)
        moves, state = step(gradient, state, weights)
        weights = optax.apply_updates(weights, moves)
        path.append(weights)
    return path


def test_every_row_of_the_table_is_here_field_by_field():
    """Row E01: every recipe of the table is here."""
    assert set(RECIPES) == set(TABLE)
    for name, (parts, rate, clips, eps, decays) in TABLE.items():
        recipe = RECIPES[name]
        assert list(recipe.parts) == parts
        assert {part.learning_rate for part in recipe.parts.values()} == {rate}
        assert {key: part.clip for key, part in recipe.parts.items()} == clips
        assert {part.eps for part in recipe.parts.values()} == {eps}
        assert recipe.decays is decays


def test_the_learners_have_the_optimisers_and_rates_of_their_recipes():
    for name, learner in LEARNERS.items():
        parts = RECIPES[name].parts
        for parameter, field in learner.rates.items():
            part = parts.get(parameter, parts.get(""))
            assert getattr(learner, field) == part.learning_rate
            ours = OPTIMISERS[learner.optimiser_of(parameter)](jnp.asarray(part.learning_rate))
            theirs = optax.adam(part.learning_rate, eps=part.eps)
            if part.clip:
                theirs = optax.chain(optax.clip_by_global_norm(part.clip), theirs)
            weights, sizes = {"w": WEIGHTS["actor"]}, (1e-6, 40.0)
            jax.tree.map(
                lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-6),
                stepped(ours, weights, sizes), stepped(theirs, weights, sizes),
            )  # fmt: skip
        assert bool(learner.schedules) == (RECIPES[name].decays or name == "dqn")


@pytest.mark.parametrize("name", TABLE)
def test_a_chain_is_its_row(name):
    """Each part against a chain of its own, through a clipped step and a tiny one.

    Row E01: a chain clips, steps and falls as its row of the table says.
    """
    _, rate, clips, eps, decays = TABLE[name]
    weights, sizes = weights_of(name), (40.0, 1e-6, 0.3)
    path = stepped(recipe_chain(name, updates=4), weights, sizes)
    schedule = optax.linear_schedule(rate, 0.0, 4) if decays else rate
    for key, clip in clips.items():
        chain = optax.adam(schedule, eps=eps)
        chain = optax.chain(optax.clip_by_global_norm(clip), chain) if clip else chain
        alone = weights if key == "" else {key: weights[key]}
        for one, other in zip(path, stepped(chain, alone, sizes), strict=True):
            for part in alone:
                np.testing.assert_allclose(one[part], other[part], rtol=1e-6)


def test_a_falling_rate_ends_at_zero_and_a_constant_one_does_not():
    for name, (*_, decays) in TABLE.items():
        *_, before, after = stepped(recipe_chain(name, updates=3), weights_of(name), (1.0,) * 4)
        moved = max(float(jnp.max(jnp.abs(before[key] - after[key]))) for key in before)
        assert (moved == 0) is decays


def test_gradients_are_gathered_into_one_step_of_their_mean():
    chain = recipe_chain("td3", updates=10, accumulate=2)
    first, second = stepped(chain, weights_of("td3"), (1.0, 3.0))
    np.testing.assert_array_equal(first["actor"], WEIGHTS["actor"])
    (whole,) = stepped(recipe_chain("td3", updates=10), weights_of("td3"), (2.0,))
    np.testing.assert_allclose(second["critics"], whole["critics"], rtol=1e-6)


def test_what_is_no_recipe_is_refused():
    with pytest.raises(
        InputError, match=r"unknown recipe of an optimiser 'sacc'; did you mean 'sac'"
    ):
        recipe_chain("sacc", updates=1)
    with pytest.raises(InputError, match="accumulate must be an integer of at least 1, got 0"):
        recipe_chain("sac", updates=1, accumulate=0)
