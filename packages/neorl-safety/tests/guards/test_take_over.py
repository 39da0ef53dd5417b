"""Take-overs beside wear, interlocks at a start, and read-backs with noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import Channel, Spec
from neorl_core.control import ConstantPolicy
from neorl_safety.constraints import (
    Constraints,
    Interlock,
    action_constraints,
    declared_constraints,
)
from neorl_safety.filters import Context, Flag, filter_action, flag_names
from neorl_safety.guards import guard, supervision

SPEC = Spec(
    obs=(Channel("level", "m", 0.0, 2.0), Channel("T", "K", 280.0, 400.0)),
    action=(Channel("valve", "%", 0.0, 100.0),),
    cost=(),
    dt=60.0,
    horizon=100,
)
FINE = jnp.array([1.0, 330.0])


class Ramp:
    """A policy that asks for a little more in every step: its carry is the last request."""

    def initial_carry(self):
        return jnp.array([20.0])

    def __call__(self, carry, obs, key=None):
        return carry + 0.3, carry + 0.3

    def sent(self, carry, action):
        return carry


jax.tree_util.register_static(Ramp)


def run(safe, carry, count, *, read=lambda action: action, obs=FINE, told=jnp.nan):
    """Actions and flags of some steps; the plant is told to have received ``read(action)``."""
    step = jax.jit(lambda carry, told, obs: safe(safe.sent(carry, told), obs))
    told, actions, flags = jnp.array([told]), [], []
    for _ in range(count):
        carry, action = step(carry, told, obs)
        told = jnp.asarray(read(action), jnp.float32)
        actions.append(float(action[0]))
        flags.append(set(flag_names(int(carry.report.flags))))
    return carry, actions, flags


@pytest.mark.parametrize(
    ("wear", "fallback"),
    [
        ({"kind": "rest", "channel": "valve", "seconds": 1800.0}, 0.0),
        ({"kind": "deadband", "channel": "valve", "unit": "%", "width": 15.0}, 10.0),
    ],
)
def test_neither_a_stop_nor_a_lost_sensor_waits_for_wear(wear, fallback):
    limits = declared_constraints(SPEC, [wear])
    settings = supervision(settle=0.0)
    safe = guard(Ramp(), limits, ConstantPolicy(jnp.array([fallback])), SPEC, supervision=settings)
    carry, actions, _ = run(safe, safe.initial_carry(), 5, told=20.0)
    assert actions[-1] >= 20.0
    _, stopped, flags = run(safe, safe.stop(carry), 3)
    assert stopped == [fallback] * 3
    assert all({"emergency_stop", "fallback_used"} <= one for one in flags)
    assert not any("wear_active" in one for one in flags)
    _, lost, flags = run(safe, carry, 3, obs=jnp.array([jnp.nan, 330.0]))
    assert lost == [fallback] * 3
    assert all("fallback_used" in one and "wear_active" not in one for one in flags)


def test_noise_of_a_read_back_is_no_move_and_does_not_make_a_resting_valve_drift():
    """A ramp of 0.3 % a step under a rest of five steps, against plain Python."""
    limits = declared_constraints(SPEC, [{"kind": "rest", "channel": "valve", "seconds": 300.0}])
    safe = guard(Ramp(), limits, ConstantPolicy(jnp.array([0.0])), SPEC)
    rng = np.random.default_rng(4)
    noisy = lambda action: action + np.float32(rng.normal(0, 0.05, 1))  # noqa: E731
    _, actions, flags = run(safe, safe.initial_carry(), 200, read=noisy)
    wanted, at, since, expected = 20.0, 0.0, np.inf, []
    for _ in range(200):
        wanted, since = wanted + 0.3, since + 60.0
        if since >= 300.0:
            at, since = wanted, 0.0
        expected.append(at)
    assert expected[-1] > 75.0
    np.testing.assert_allclose(actions, expected, atol=1e-3)
    assert not any("fallback_used" in one for one in flags[1:])


def test_what_somebody_else_did_to_a_resting_valve_stays():
    limits = declared_constraints(SPEC, [{"kind": "rest", "channel": "valve", "seconds": 1e6}])
    safe = guard(Ramp(), limits, ConstantPolicy(jnp.array([0.0])), SPEC)
    carry, actions, _ = run(safe, safe.initial_carry(), 3)
    assert actions[-1] == actions[0]
    _, actions, _ = run(safe, carry, 4, read=lambda action: jnp.array([70.0]))
    assert actions[1:] == [70.0] * 3


LOCK = {"kind": "interlock", "obs": "level", "obs_unit": "m", "below": None, "above": 1.8,
        "channel": "valve", "unit": "%", "low": 0.0, "high": 10.0}  # fmt: skip
RATE = {"kind": "rate", "channel": "valve", "unit": "%", "up": 0.25, "down": 0.25}
HIGH = jnp.array([1.9, 330.0])


def test_a_start_beside_a_tripped_interlock_keeps_it():
    limits = declared_constraints(SPEC, [LOCK, RATE])
    unknown = Context(HIGH, jnp.array([jnp.nan]), jnp.float32(60.0), jnp.array([60.0]))
    step = jax.jit(filter_action)
    for request, expected in ((5.0, 5.0), (80.0, 10.0), (jnp.nan, 10.0)):
        action, report = step(limits, unknown, jnp.array([request]))
        assert action.tolist() == [expected]
        assert int(report.flags) & Flag.PREVIOUS_UNKNOWN


def test_an_unknown_start_keeps_drawn_interlocks_and_only_those_leave_the_box():
    """Two interlocks on one channel, against sets met in plain Python."""
    rng = np.random.default_rng(8)
    count = 500
    step = jax.jit(jax.vmap(lambda lock, context, u: filter_action(
        Constraints(action_constraints(SPEC, [0.1], low=[40.0], high=[90.0]), {"interlock": lock}),
        context, u)))  # fmt: skip
    ends = np.sort(rng.uniform(0, 100, (2, count, 2)), axis=0).astype(np.float32)
    trips = np.sort(rng.uniform(280, 400, (2, count, 2)), axis=0).astype(np.float32)
    obs = rng.uniform([0, 280], [2, 400], (count, 2)).astype(np.float32)
    fallback, request = rng.uniform(-10, 110, (2, count, 1)).astype(np.float32)
    index = jnp.zeros((count, 2), jnp.int32)
    lock = Interlock(index + 1, trips[0], trips[1], index, ends[0], ends[1])
    unknown = np.full((count, 1), np.nan, np.float32)
    context = Context(obs, unknown, np.full(count, 60.0, np.float32), fallback)
    action, report = jax.tree.map(np.asarray, step(lock, context, request))
    beside = 0
    for i in range(count):
        low, high = 0.0, 100.0
        for k in range(2):
            if not trips[0][i, k] <= obs[i, 1] <= trips[1][i, k]:
                low, high = max(low, ends[0][i, k]), min(high, ends[1][i, k])
        empty = low > high
        low, high = (0.0, 100.0) if empty else (low, high)
        if low > 90 or high < 40:
            beside += 1
        else:
            low, high = max(low, 40.0), min(high, 90.0)
        assert low <= action[i, 0] <= high
        start = np.clip(fallback[i, 0], low, high)
        wanted = np.clip(np.clip(request[i, 0], low, high), start - 6.0, start + 6.0)
        assert action[i, 0] == pytest.approx(wanted, abs=1e-4)
        assert bool(report.flags[i] & Flag.INTERVAL_EMPTY) == empty
    assert beside > 50


def test_a_trip_to_zero_beside_a_minimum_firing_rate_holds_and_is_left_at_the_rate():
    box = {"kind": "box", "channel": "valve", "unit": "%", "low": 40.0, "high": 90.0}
    limits = declared_constraints(
        SPEC, [box, RATE | {"up": 0.1, "down": 1.0}, LOCK | {"high": 0.0}]
    )
    step = jax.jit(filter_action)

    def after(level, before):
        context = Context(jnp.array([level, 330.0]), jnp.array([before]), jnp.float32(60.0),
                          jnp.array([50.0]))  # fmt: skip
        action, report = step(limits, context, jnp.array([60.0]))
        return float(action[0]), set(flag_names(int(report.flags)))

    action, flags = after(1.9, 60.0)
    assert action == 0.0
    assert "interval_active" in flags
    action, flags = after(1.9, 0.0)
    assert action == 0.0
    assert "previous_outside_box" not in flags
    action, flags = after(1.0, 0.0)
    assert action == 6.0
    assert "previous_outside_box" in flags


def test_a_malformed_interlock_does_not_silence_its_neighbours():
    index = jnp.zeros((2,), jnp.int32)
    lock = Interlock(
        index, jnp.array([-jnp.inf, -jnp.inf]), jnp.array([1.8, 1.8]), index,
        jnp.array([0.0, jnp.nan]), jnp.array([10.0, 50.0]),
    )  # fmt: skip
    limits = Constraints(action_constraints(SPEC), {"interlock": lock})
    context = Context(HIGH, jnp.array([5.0]), jnp.float32(60.0), jnp.array([60.0]))
    action, report = jax.jit(filter_action)(limits, context, jnp.array([5.0]))
    assert action.tolist() == [10.0]
    assert int(report.flags) & Flag.BAD_CONSTRAINT
    assert int(report.flags) & Flag.FALLBACK_USED


@pytest.mark.parametrize("width", [1, 3])
def test_another_number_of_observations_is_refused(width):
    limits = declared_constraints(SPEC, [LOCK])
    context = Context(jnp.ones(width), jnp.zeros(1), jnp.float32(60.0), jnp.zeros(1))
    expected = r"context.obs has shape \(\d,\); expected \(2,\) for the observations level, T"
    with pytest.raises(ValueError, match=expected):
        filter_action(limits, context, jnp.zeros(1))
    safe = guard(ConstantPolicy(jnp.ones(1)), limits, ConstantPolicy(jnp.ones(1)), SPEC,
                 monitors=[])  # fmt: skip
    with pytest.raises(ValueError, match=expected):
        safe(safe.initial_carry(), jnp.ones(width))
