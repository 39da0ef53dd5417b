from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_envs.plants import ChemicalReactor
from neorl_envs.recording import excitation_plan
from neorl_envs.recording._behaviour import (
    in_manual,
    init_operators,
    moved_setpoint,
    operator_log_prob,
    operator_step,
)


@pytest.fixture(scope="module")
def shift(env: ChemicalReactor) -> Any:
    """20,000 steps of operators who see a calm plant, then a plant outside its watched range."""
    plan = env.operator_plan()
    calm = jnp.zeros(12).at[0].set(363.15)

    def step(state: Any, row: Any) -> Any:
        key, hot = row
        obs = calm.at[0].add(jnp.where(hot, 10.0, 0.0))
        state, manual, signal = operator_step(plan, state, obs, key)
        return state, (state, manual, signal, in_manual(plan, state))

    keys = jax.random.split(jax.random.key(0), 20_000)
    hot = jnp.arange(20_000) >= 18_000
    state = init_operators(plan, jax.random.key(1))
    return plan, jax.tree.map(np.asarray, jax.jit(jax.lax.scan, static_argnums=0)(
        step, state, (keys, hot)
    )[1])  # fmt: skip


def runs(flags: np.ndarray) -> np.ndarray:
    """Lengths of the runs of equal values."""
    change = np.flatnonzero(np.diff(flags) != 0)
    return np.diff(np.concatenate([[-1], change, [len(flags) - 1]]))


def test_the_binary_signal_has_its_amplitude_and_dwell(shift: Any) -> None:
    plan, (state, manual, signal, _) = shift
    for i, amplitude in enumerate(np.asarray(plan.amplitude)):
        assert set(np.abs(signal[:, i])) == {0.0, amplitude}
        np.testing.assert_array_equal(signal[:, i] == 0, manual[:, i])
        assert runs(state.sign[:, i]).mean() == pytest.approx(10, rel=0.1)
        assert np.mean(state.sign[:, i]) == pytest.approx(0, abs=0.1)
    # One channel does not predict another.
    assert np.abs(np.corrcoef(state.sign.T) - np.eye(3)).max() < 0.1


def test_manual_holds_last_5_to_30_minutes_one_channel_at_a_time(shift: Any) -> None:
    plan, (state, manual, _, again) = shift
    np.testing.assert_array_equal(manual, again)
    calm = manual[:18_000]
    assert calm.sum(axis=1).max() == 1
    held = calm.any(axis=1)
    lengths = runs(held)[0 if held[0] else 1 :: 2]
    complete = lengths[:-1]  # the last may be cut
    assert complete.min() >= 6  # 300 s
    assert (complete <= 72).all()  # at most 36 steps, perhaps directly followed by another
    assert (complete <= 36).mean() > 0.7
    assert (calm.sum(axis=0) > 500).all()  # every channel
    assert np.asarray(plan.hold_longest) == 36
    # Handed back at once when the plant leaves its range, and not taken again.
    assert not manual[18_000:].any()
    assert not state.left[18_000:].any()


def test_set_points_step_together_and_stay_below_their_limit(
    env: ChemicalReactor, shift: Any
) -> None:
    plan, (state, *_) = shift
    offset = state.offset
    np.testing.assert_array_equal(offset[:, 1], offset[:, 2])  # both loops hold one temperature
    assert (offset[:, 0] != offset[:, 1]).any()
    assert np.abs(offset).max() <= 1
    changes = np.any(np.diff(offset, axis=0) != 0, axis=1).mean()
    assert changes == pytest.approx(1 / 30, rel=0.2)
    fast = env.tunings()["PID 108/3000"].setpoint
    last = jax.tree.map(lambda leaf: jnp.asarray(leaf[-1]), state)
    for part in (-1.0, 1.0):
        full = last._replace(offset=jnp.full(3, part))
        moved = np.asarray(moved_setpoint(plan, full, fast))
        assert moved[0] <= 381.15 + 1e-3
        np.testing.assert_allclose(moved[1:], 363.15 + part, rtol=1e-6)


def test_densities_of_operators_weigh_one_plan_to_another() -> None:
    """The mean of ``q / p`` over steps drawn under ``p`` is one, for any plan ``q``."""
    drawn = excitation_plan(jnp.array([1.0, 0.0, 2.0]), 2, 1)._replace(
        dwell=jnp.asarray(4.0), setpoint_step=jnp.ones(2), setpoint_group=jnp.array([0, 0]),
        setpoint_every=jnp.asarray(5.0), hold_every=jnp.asarray(6.0),
        hold_longest=jnp.asarray(3, jnp.int32),
    )  # fmt: skip
    other = drawn._replace(dwell=jnp.asarray(6.0), setpoint_every=jnp.asarray(3.0))
    other = other._replace(hold_every=jnp.asarray(4.0))
    obs, n = jnp.zeros(1), 40_000

    def weight(key: Any) -> Any:
        keys = jax.random.split(key, 3)
        before, _, _ = operator_step(drawn, init_operators(drawn, keys[0]), obs, keys[1])
        after, _, _ = operator_step(drawn, before, obs, keys[2])
        p, q = (
            operator_log_prob(plan, before, after, obs, started=True, steps_setpoints=True)
            for plan in (drawn, other)
        )
        return jnp.exp(q - p), p

    weights, log_prob = jax.jit(jax.vmap(weight))(jax.random.split(jax.random.key(0), n))
    error = 4 * np.std(weights) / np.sqrt(n)
    np.testing.assert_allclose(np.mean(weights), 1.0, atol=error)
    assert error < 0.03
    assert np.isfinite(log_prob).all()
