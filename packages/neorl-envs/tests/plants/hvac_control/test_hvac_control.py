"""The office against SciPy's integration of its network, and what its controllers come to."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from neorl_core import highs, lows
from neorl_core.control import UniformPolicy
from neorl_envs.plants import HVACControl
from neorl_envs.plants.hvac_control import bad_policy

OUTDOOR = np.array([67.0, 137.6, 129.4, 82.5, 82.5])
GROUND = np.array([23.9, 18.1, 18.1, 10.7, 10.7])
SURFACE = np.array([1192.0, 903.0, 903.0, 536.0, 536.0])
AIR = 1e6 * np.array([3.30, 2.50, 2.50, 1.49, 1.49])
MASS = 1e6 * np.array([24.7, 18.7, 18.7, 11.1, 11.1])
FLOOR = np.array([149.66, 113.45, 113.45, 67.30, 67.30])
WINDOW = np.array([0, 20.64, 16.73, 11.16, 11.16])
WALLS = {(0, 1): 97.1, (0, 2): 97.1, (0, 3): 46.4, (0, 4): 46.4} | dict.fromkeys(
    [(1, 3), (1, 4), (2, 3), (2, 4)], 38.8
)


@pytest.fixture(scope="module")
def env() -> HVACControl:
    return HVACControl()


def weather(step: int) -> tuple[float, float, float]:
    """Mid-July without clouds: outdoor temperature, radiation and people, by the hour."""
    hour = step * 0.25 % 24
    outdoor = 23 + 6 * np.cos(2 * np.pi * (hour - 15) / 24)
    sun = 950 * max(np.sin(np.pi * (hour - 4.5) / 15), 0) if 4.5 < hour < 19.5 else 0.0
    return outdoor, 0.75 * sun, 0.85 * (8 <= hour < 18 and step // 96 % 7 < 5)


def slopes(_: float, x: np.ndarray, heat: np.ndarray, step: int) -> np.ndarray:
    """The balances zone by zone, in watts, written down from the reference."""
    outdoor, radiation, people = weather(step)
    hour = step * 0.25 % 24
    peak = {1: (0.45, 12), 3: (0.55, 8), 4: (0.55, 16)}
    air, mass, out = x[:5], x[5:], np.zeros(10)
    for i in range(5):
        direct, noon = peak.get(i, (0.0, 12))
        sun = 0.39 * WINDOW[i] * radiation
        sun *= 0.25 + direct * max(np.cos(np.pi * (hour - noon) / 12), 0)
        use = FLOOR[i] * (70 / 18.6 * people + 14 * (0.1 + 0.9 * people))
        q = OUTDOOR[i] * (outdoor - air[i]) + GROUND[i] * (14 - air[i])
        q += SURFACE[i] * (mass[i] - air[i]) + 1000 * heat[i] + 0.5 * sun + 0.6 * use
        for (a, b), k in WALLS.items():
            q += k * ((air[b] - air[i]) * (a == i) + (air[a] - air[i]) * (b == i))
        out[i] = q / AIR[i]
        out[5 + i] = (SURFACE[i] * (air[i] - mass[i]) + 0.5 * sun + 0.4 * use) / MASS[i]
    return out


def driven(env: HVACControl, actions: np.ndarray, dtype: Any) -> Any:
    """Temperatures, applied heats, information and readings of a week in July without noise."""
    with jax.enable_x64(dtype == jnp.float64):
        params = env.default_params("clean", dtype=dtype)

        def one(state: Any, action: Any) -> Any:
            state, step = env.step(params, state, action, jax.random.key(0))
            return state, (jnp.concatenate(state.plant), step.applied, step.info, step.obs)

        @jax.jit
        def run(actions: Any) -> Any:
            return jax.lax.scan(one, env.reset(params, jax.random.key(0))[0], actions)[1]

        return jax.device_get(run(jnp.asarray(actions, dtype)))


def test_the_sampled_network_is_its_differential_equation(env: HVACControl) -> None:
    actions = np.random.default_rng(1).uniform(-8, 8, (60, 5))
    actual, applied, info, obs = driven(env, actions, jnp.float64)
    x = np.full(10, 21.0)
    for k, heat in enumerate(applied):
        period = solve_ivp(slopes, (0, 900), x, "DOP853", args=(heat, k), rtol=1e-10, atol=1e-10)
        x = period.y[:, -1]
        np.testing.assert_allclose(actual[k], x, rtol=0, atol=1e-8)
        outdoor, radiation, people = weather(k)
        cool, warm = 3.6 - 0.06 * (outdoor - 30), 3.2 + 0.06 * (outdoor - 8)
        power = np.sum(np.where(heat < 0, -heat / cool, heat / warm) + 0.05 * np.abs(heat))
        np.testing.assert_allclose(info.power[k], power, rtol=1e-9)
        if k:
            np.testing.assert_allclose(obs[k - 1, 10:13], [outdoor, radiation, people], atol=1e-9)
    single, *_ = driven(env, actions, jnp.float32)
    # A millikelvin: how float32 rounds depends on what the compiler fuses.
    np.testing.assert_allclose(single, actual, rtol=0, atol=1e-3)


def test_heat_is_conserved(env: HVACControl) -> None:
    # Without losses, all heat put in stands in air and masses: 1 kW a zone for an hour.
    params = env.default_params("clean")
    c = params.constants._replace(
        outdoor=jnp.full(5, 1e-6), ground=jnp.full(5, 1e-6), equipment=jnp.asarray(1e-6)
    )
    step = env.derive(c)
    x = jnp.full(10, 20.0)
    held = jnp.zeros(12).at[:2].set(20.0).at[2:7].set(1.0)
    for _ in range(4):
        x = step.transition @ x + step.inputs @ held
    stored = np.sum(np.concatenate([AIR, MASS]) * (np.asarray(x, np.float64) - 20))
    np.testing.assert_allclose(stored, 5 * 1000 * 3600, rtol=1e-4)


def test_own_records_take_the_place_of_the_weather(env: HVACControl) -> None:
    short = HVACControl(horizon=8)
    params = short.default_params("clean")
    series = np.linspace(-5, 5, 12)
    price = np.linspace(0.1, 0.2, 12)
    mine = short.with_records(params, temperature=series, price=price)
    short.check_params(mine)
    state, obs = jax.jit(short.reset)(mine, jax.random.key(0))
    step = jax.jit(short.step)
    for k in range(8):
        np.testing.assert_allclose(
            np.asarray(obs)[[10, 13, 14]], [series[k], price[k], series[k + 4]], 1e-5
        )
        state, answer = step(mine, state, jnp.zeros(5), jax.random.key(0))
        obs = answer.obs
    assert bool(answer.truncated)
    with pytest.raises(ValueError, match=r"radiation must have shape \(time,\) with at least 12"):
        short.with_records(params, radiation=series[:5])
    with pytest.raises(ValueError, match="temperature has values that are not finite"):
        short.with_records(params, temperature=np.where(series > 0, np.nan, series))


@pytest.mark.nightly
def test_controllers_rank_as_they_should(env: HVACControl, totals: Any) -> None:
    check_ranks(env, totals, 100)


@pytest.mark.nightly
def test_controllers_rank_as_they_should_over_many_weeks(env: HVACControl, totals: Any) -> None:
    check_ranks(env, totals, 1000)


def check_ranks(env: HVACControl, totals: Any, weeks: int) -> None:
    low, high = jnp.asarray(lows(env.spec.action)), jnp.asarray(highs(env.spec.action))
    ordinary, strong = (totals(env, policy, weeks) for policy in env.tunings().values())
    chance = totals(env, UniformPolicy(low, high), weeks)
    assert strong.score.mean() > ordinary.score.mean() + 5
    assert ordinary.score.mean() > -40
    assert ordinary.score.mean() > chance.score.mean() + 100
    assert strong.kept_each.mean(axis=0).min() >= 0.99
    assert totals(env, bad_policy(), weeks).kept_each.mean(axis=0).max() <= 0.5


@pytest.mark.nightly
def test_no_constant_heat_does_as_well(env: HVACControl, constant_scores: Any) -> None:
    # The score of "PI" is above -40 in every hundred weeks.
    assert constant_scores(env, 200, 8).max() < -100


def test_hostile_actions_stay_finite_and_compile_once(env: HVACControl) -> None:
    params = env.default_params()
    state, _ = jax.jit(env.reset)(params, jax.random.key(0))
    step = jax.jit(env.step)
    low, high = np.asarray(lows(env.spec.obs)), np.asarray(highs(env.spec.obs))
    for value in (np.nan, np.inf, -np.inf, 1e30, -8.0):
        for _ in range(3):
            state, answer = step(params, state, jnp.full(5, value), jax.random.key(1))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state, answer)))
        assert (answer.obs >= low).all()
        assert (answer.obs <= high).all()
    assert step._cache_size() == 1
    assert [channel.name for channel in env.spec.cost] == ["energy", "comfort"]
    assert (env.spec.n_obs, env.spec.n_action) == (18, 5)
