"""The stirred tank against SciPy, its steady states, and its controllers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from neorl_core.control import UniformPolicy
from neorl_envs.plants import CSTR
from neorl_envs.plants.cstr import bad_policy, coolant_that_holds

ENV = CSTR()


def balances(_t: float, x: np.ndarray, coolant: float) -> list[float]:
    """The textbook's equations, written down again; minutes."""
    concentration, temperature = x
    rate = 7.2e10 * np.exp(-8750 / temperature) * concentration
    return [
        100 / 100 * (1 - concentration) - rate,
        350 - temperature + 5e4 / 239 * rate + 5e4 / (239 * 100) * (coolant - temperature),
    ]


def test_a_hundred_steps_agree_with_dop853() -> None:
    demands = np.random.default_rng(0).uniform(290, 302, 100)
    with jax.enable_x64(True):
        params = ENV.default_params("clean", dtype=jnp.float64)
        state, _ = ENV.reset(params, jax.random.key(0))

        def step(state: Any, demand: jax.Array) -> Any:
            state, answer = ENV.step(params, state, demand[None], jax.random.key(0))
            return state, (jnp.stack(state.plant), answer.applied[0])

        _, (actual, applied) = jax.jit(lambda s, u: jax.lax.scan(step, s, u))(
            state, jnp.asarray(demands)
        )
        actual = np.asarray(actual)
    x, expected = np.array([0.877, 324.5]), []
    for coolant in np.asarray(applied):
        x = solve_ivp(balances, (0, 0.25), x, "DOP853", args=(coolant,), rtol=1e-12, atol=1e-12)
        x = x.y[:, -1]
        expected.append(x)
    np.testing.assert_allclose(actual, expected, rtol=1e-8)


def test_the_feed_forward_holds_the_tank_where_it_is() -> None:
    c = ENV.default_params("clean").constants
    for level in (0.82, 0.877, 0.94):
        coolant = float(coolant_that_holds(c, jnp.asarray(level)))
        temperature = 8750 / np.log(7.2e10 * level / (1 - level))
        slopes = balances(0.0, np.array([level, temperature]), coolant)
        np.testing.assert_allclose(slopes, 0, atol=2e-3)


@pytest.mark.parametrize("n_episodes", [128, pytest.param(1000, marks=pytest.mark.nightly)])
def test_the_reference_keeps_the_limit_and_the_bad_policy_breaks_it(
    episodes: Any, n_episodes: int
) -> None:
    """Row N04: a tuned controller keeps the limit nearly always, a bad policy breaks it mostly."""
    keys = jax.random.split(jax.random.key(1), n_episodes)
    scores, kept = {}, {}
    policies = {
        **ENV.tunings(),
        "uniform": UniformPolicy(jnp.asarray([285.0]), jnp.asarray([310.0])),
        "hot": bad_policy(),
    }
    for name, policy in policies.items():
        seen = jax.tree.map(np.asarray, episodes(ENV, policy, keys))
        cost = seen.cost[:, :, 0].sum(axis=1)
        scores[name] = seen.reward.sum(axis=1) - ENV.penalties["temperature"] * cost
        kept[name] = np.mean((cost <= 1.0) & ~seen.trip.any(axis=1))
    assert kept["PI feed-forward"] >= 0.99
    assert kept["hot"] <= 0.5
    ranked = ("PI feed-forward", "PI", "uniform")
    order = [scores[name].mean() for name in ranked]
    margins = [2 * scores[name].std() / n_episodes**0.5 for name in ranked]
    assert order[0] - margins[0] > order[1] + margins[1]
    assert order[1] - margins[1] > order[2] + margins[2]
