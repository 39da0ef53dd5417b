"""The numbers of a controller that may be tuned: what moves with them, and what they are called."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neorl_core import Channel, InputError, Spec
from neorl_core.control import (
    PID,
    BaseStock,
    ConstantPolicy,
    Entry,
    StateFeedback,
    Tunable,
    TunableController,
    inside,
    tunable_values,
    tunables,
    tuned,
)

SPEC = Spec(
    tuple(Channel(name, "degC", 0.0, 200.0) for name in ("T1", "T2", "T3")),
    (Channel("valve", "%", 0.0, 100.0), Channel("heater", "kW", 0.0, 40.0)),
    (),
    dt=1.0,
    horizon=10,
)
SPREAD = np.array([4.0, 2.0, 1.0], np.float32)


def bank(kp=(2.0, -3.0), ki=(0.1, 0.0), kd=(0.0, 0.0), setpoint=(80.0, 0.0), bias=(0.0, 12.0)):
    rows = [jnp.asarray(x, jnp.float32) for x in (kp, ki, kd, (0.0, 0.0), setpoint, bias)]
    ends = jnp.zeros(2), jnp.asarray([100.0, 40.0])
    empty = jnp.zeros(0)
    return PID(*rows, *ends, jnp.asarray(1.0), empty, empty, (1, 2))


def feedback():
    gain = jnp.asarray([[1.0, 0.0, -2.0], [0.0, 0.0, 0.0]])
    setpoint = jnp.asarray([50.0, 60.0, 0.0])
    return StateFeedback(gain, setpoint, jnp.ones(2), jnp.zeros(2), jnp.full(2, 40.0))


def stock():
    level, position = jnp.asarray([30.0, 0.0]), jnp.ones((2, 3))
    return BaseStock(level, position, jnp.zeros(2), jnp.full(2, 99.0))


def declared_names(controller):
    return [number.name for number in tunables(controller, SPEC)]


def test_a_pid_is_tuned_by_gains_times_and_set_points():
    assert isinstance(bank(), TunableController)
    assert declared_names(bank()) == [
        "gain of valve",
        "integral time of valve",
        "gain of heater",
        "setpoint of T2 for valve",
        "bias of heater",
    ]
    loops = tunables(bank(), SPEC)
    measured = SPEC.obs[bank().measured[0]].unit
    assert [one.unit for one in loops[:2]] == [f"{SPEC.action[0].unit} per {measured}", "s"]
    values = tunable_values(bank(), tunables(bank(), SPEC))
    np.testing.assert_allclose(values, [2.0, 20.0, -3.0, 80.0, 12.0], rtol=1e-6)


def test_loops_with_equal_numbers_are_tuned_together():
    alike = bank(kp=(2.0, 2.0), ki=(0.1, 0.1), kd=(1.0, 1.0), setpoint=(0.0, 0.0))
    assert declared_names(alike) == [
        "gain of valve, heater",
        "integral time of valve, heater",
        "derivative time of valve, heater",
    ]
    after = tuned(alike, tunables(alike, SPEC), jnp.asarray([1.0, -2.0, 0.5]))
    gain, slower, longer = np.exp(0.5), np.exp(-1.0), np.exp(0.25)
    np.testing.assert_allclose(after.kp, 2.0 * gain * np.ones(2), rtol=1e-6)
    np.testing.assert_allclose(after.ki, 0.1 * gain / slower * np.ones(2), rtol=1e-6)
    np.testing.assert_allclose(after.kd, gain * longer * np.ones(2), rtol=1e-6)


def test_a_gain_leaves_the_times_and_a_time_leaves_the_gain():
    pid = bank()
    declared = tunables(pid, SPEC)
    louder = tuned(pid, declared, jnp.asarray([1.0, 0, 0, 0, 0]), spread=SPREAD)
    slower = tuned(pid, declared, jnp.asarray([0, 1.0, 0, 0, 0]), spread=SPREAD)
    before, loud, slow = (np.asarray(tunable_values(x, declared)) for x in (pid, louder, slower))
    np.testing.assert_allclose(loud / before, [np.exp(0.5), 1, 1, 1, 1], rtol=1e-6)
    np.testing.assert_allclose(slow / before, [1, np.exp(0.5), 1, 1, 1], rtol=1e-6)


def test_a_set_point_is_shifted_by_a_part_of_the_spread_of_its_channel():
    pid = bank()
    after = tuned(pid, tunables(pid, SPEC), jnp.asarray([0, 0, 0, 2.0, 0]), spread=SPREAD)
    np.testing.assert_allclose(after.setpoint, [80.0 + 2 * 0.25 * 2.0, 0.0])
    with pytest.raises(InputError, match="setpoint of T2 for valve is shifted by a part"):
        tuned(pid, tunables(pid, SPEC), jnp.zeros(5))


def test_a_state_feedback_is_tuned_entry_by_entry_and_a_large_one_by_equal_entries():
    assert declared_names(feedback()) == [
        "gain from T1 to valve",
        "gain from T3 to valve",
        "setpoint of T1",
        "bias of valve",
    ]
    wide = Spec(
        tuple(Channel(f"y{i}", "1", -1.0, 1.0) for i in range(20)),
        SPEC.action[:1],
        (),
        dt=1.0,
        horizon=2,
    )
    law = StateFeedback(
        jnp.full((1, 20), -0.5), jnp.zeros(20), jnp.zeros(1), jnp.zeros(1), jnp.ones(1)
    )
    names = [number.name for number in tunables(law, wide)]
    assert names == ["gain from y0 to valve and 19 equal ones", "bias of valve"]


def test_levels_of_zero_are_left_alone():
    assert declared_names(stock()) == ["level of valve"]
    after = tuned(stock(), tunables(stock(), SPEC), jnp.asarray([1.0]))
    np.testing.assert_allclose(after.level, [30.0 * np.exp(0.2), 0.0], rtol=1e-6)


def test_the_numbers_of_a_part_are_those_of_the_whole():
    class Trimmed(NamedTuple):
        loops: PID

    whole = Trimmed(bank())
    declared = inside(tunables(bank(), SPEC), "loops")
    assert declared[0].moves[0] == Entry("loops.kp", (0,))
    after = tuned(whole, declared, jnp.asarray([1.0, 0, 0, 0, 0]), spread=SPREAD)
    np.testing.assert_allclose(after.loops.kp, [2.0 * np.exp(0.5), -3.0], rtol=1e-6)
    assert tunable_values(whole, declared) == tunable_values(bank(), tunables(bank(), SPEC))


def test_a_controller_without_tunable_numbers_is_refused():
    with pytest.raises(InputError, match=r"ConstantPolicy declares no number that may be tuned"):
        tunables(ConstantPolicy(jnp.ones(2)), SPEC)
    with pytest.raises(ValueError, match="changes"):
        tuned(stock(), tunables(stock(), SPEC), jnp.zeros(3))


changes_of_five = st.lists(st.floats(-3, 3, width=32), min_size=5, max_size=5)


@given(changes_of_five, changes_of_five)
def test_changes_add_up_and_zero_changes_nothing(one, two):
    pid = bank()
    declared = tunables(pid, SPEC)

    def at(changes):
        return tuned(pid, declared, changes, spread=SPREAD)

    one, two = (jnp.asarray(x, jnp.float32) for x in (one, two))
    same = at(jnp.zeros(5))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), same, pid))
    twice = tuned(at(one), declared, two, spread=SPREAD)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)  # noqa: E731
    jax.tree.map(close, twice, at(one + two))
    both = jnp.stack([one, two])
    for compiled in (jax.vmap(at), jax.jit(jax.vmap(at))):
        rows = compiled(both)
        jax.tree.map(lambda rows, a, b: close(rows, jnp.stack([a, b])), rows, at(one), at(two))


def test_a_gradient_through_a_factor_is_its_step():
    declared = tunables(stock(), SPEC)
    slope = jax.grad(lambda c: tuned(stock(), declared, c).level[0])(jnp.zeros(1))
    np.testing.assert_allclose(slope, [0.2 * 30.0], rtol=1e-6)
    assert declared[0] == Tunable(
        "level of valve", "%", (Entry("level", (0,)),), (Entry("level", (0,)),), "factor", 0.2
    )
