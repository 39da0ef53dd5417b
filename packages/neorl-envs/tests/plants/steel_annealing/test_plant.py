"""SteelAnnealing-v0: constraint, scores, coils and hostile actions."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.control import UniformPolicy
from neorl_envs.plants import SteelAnnealing
from neorl_envs.plants.steel_annealing import bad_policy


@pytest.fixture(scope="module")
def env() -> SteelAnnealing:
    return SteelAnnealing()


def constant(env: SteelAnnealing, fuel: Any) -> Any:
    """Constant burners as a policy of the reference's kind: both ends of its range at one place."""
    fuel = jnp.broadcast_to(jnp.asarray(fuel, jnp.float32), (6,))
    return dataclasses.replace(env.tunings()[env.reference], low=fuel, high=fuel)


def test_channels_are_the_declared_ones(env: SteelAnnealing) -> None:
    assert (env.spec.n_obs, env.spec.n_action) == (20, 6)
    assert [channel.name for channel in env.spec.cost] == ["temperature_profile"]
    assert env.spec.horizon * env.spec.dt == 4 * 3600


@pytest.mark.nightly
def test_reference_keeps_the_profile_and_constant_burners_do_not(
    env: SteelAnnealing, totals: Any
) -> None:
    reference = totals(env, env.tunings()[env.reference], 32)
    assert reference.kept.mean() >= 0.96
    assert not reference.trip.any()
    bad = totals(env, constant(env, bad_policy().action), 32)
    assert bad.kept.mean() <= 0.05
    well_chosen = totals(env, constant(env, 0.8), 32)
    assert bad.score.mean() < well_chosen.score.mean() < reference.score.mean() - 50


@pytest.mark.nightly
def test_scores_over_a_thousand_episodes(env: SteelAnnealing, totals: Any) -> None:
    tunings = env.tunings()
    reference = totals(env, tunings["PI feed-forward"], 1000, key=1)
    assert reference.kept.mean() >= 0.99
    assert totals(env, bad_policy(), 1000, key=1).kept.mean() <= 0.5
    ordinary = totals(env, tunings["zone PI with exit trim"], 100)
    uniform = totals(env, UniformPolicy(jnp.zeros(6), jnp.ones(6)), 100)
    assert uniform.score.mean() < ordinary.score.mean() - 500
    assert ordinary.score.mean() < reference.score.mean() - 50
    drawn = np.random.default_rng(0).uniform(0, 1, (200, 6))
    drawn = np.concatenate([drawn, np.repeat(np.linspace(0.5, 1, 26)[:, None], 6, axis=1)])
    best = max(totals(env, constant(env, fuel), 4).score.mean() for fuel in drawn)
    assert best < ordinary.score.mean() - 20


def test_coils_follow_each_other_and_hostile_demands_stay_finite(
    env: SteelAnnealing, kept_at: Any
) -> None:
    """Horizon twice over, demands from infinite to NaN: readings in range, coils in theirs."""
    demands = [[np.inf] * 6, [-np.inf] * 6, [np.nan] * 6, [1.0, 0.0] * 3]
    coil, weld = kept_at(
        env, demands, 1440, lambda state, answer: (state.plant.coil, answer.obs[18])
    )
    thickness, width, setpoint, _ = coil
    assert thickness.min() >= 0.5
    assert thickness.max() <= 1.4
    assert width.min() >= 0.9
    assert width.max() <= 1.5
    assert set(np.unique(setpoint)) == {720.0, 750.0, 780.0}
    # A weld comes nearer at the strip's speed and is followed by another, 800 to 1500 m behind.
    behind = weld[:, 1:] - weld[:, :-1]
    assert behind[behind < 0].min() >= -2.8 * 20 - 0.01
    jumps = behind[behind > 0]
    assert 4 * 20 < jumps.size < 4 * 60
    assert jumps.min() > 800 - 57
    assert jumps.max() < 1500.01
