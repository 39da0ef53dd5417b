"""Laws of the PID that need more than one sequence: hand-over, windup, lost measurements."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from neorl_core.control import PID, PIDCarry, follow
from neorl_core.testing import no_recompile, reals, state_keeps_form


def loop(kp=2.0, ki=0.5, kd=0.0, tau=1.0, setpoint=10.0, low=-100.0, high=100.0, dt=0.5):
    one = {name: jnp.asarray([value]) for name, value in {
        "kp": kp, "ki": ki, "kd": kd, "tau": tau, "setpoint": setpoint, "low": low, "high": high,
    }.items()}  # fmt: skip
    none = jnp.zeros(0)
    return PID(
        **one,
        bias=jnp.asarray([5.0]),
        dt=jnp.asarray(dt),
        override_below=none,
        override_cap=none,
        measured=(0,),
    )


@jax.jit
def step(pid, carry, reading):
    carry, output = pid(carry, jnp.reshape(reading, (1,)), None)
    return carry, output[0]


def run(pid, readings, carry=None):
    carry = pid.initial_carry() if carry is None else carry
    outputs = []
    for reading in readings:
        carry, output = step(pid, carry, jnp.float32(reading))
        outputs.append(float(output))
    return carry, np.asarray(outputs)


def test_the_first_step_has_no_derivative_kick():
    _, (first, second) = run(loop(ki=0.0, kd=4.0, tau=0.0), [3.0, 3.5])
    assert first == pytest.approx(5 + 2 * 7)
    assert second == pytest.approx(5 + 2 * 6.5 - 4 * (0.5 / 0.5))


def test_a_step_of_the_setpoint_gives_no_derivative_kick():
    pid = loop(kp=0.0, ki=0.0, kd=4.0)
    carry, _ = run(pid, [3.0, 3.0])
    moved = dataclasses.replace(pid, setpoint=pid.setpoint + 50)
    assert run(moved, [3.0], carry)[1][0] == pytest.approx(5.0)


def test_the_derivative_filter_is_the_exact_first_order_lag_of_a_ramp():
    """A ramp of slope s: the backward-Euler lag is ``s (1 - (tau / (tau + dt))^n)``."""
    pid = loop(kp=0.0, ki=0.0, kd=1.0, tau=2.0)
    _, outputs = run(pid, 3.0 * np.arange(8))
    lag = 6.0 * (1 - (2.0 / 2.5) ** np.arange(8))
    np.testing.assert_allclose(5 - outputs, lag, rtol=1e-5)


@given(reals(-50, 50), reals(-8, 8))
def test_hand_over_has_no_bump(manual, reading):
    """While another controller acts, the loop follows and takes over with one integral step."""
    pid = loop()
    carry, _ = run(pid, [0.0, 4.0])
    for _ in range(3):
        carry, _ = step(pid, carry, jnp.float32(reading))
        carry = follow(pid, carry, jnp.asarray([manual], jnp.float32))
    _, output = step(pid, carry, jnp.float32(reading))
    assert float(output) == pytest.approx(manual + 0.5 * (10 - reading) * 0.5, abs=1e-3)


@given(reals(-50, 50), reals(-8, 8))
def test_a_start_from_a_known_action_has_no_bump(manual, reading):
    pid = loop(kd=1.0)
    carry = pid.sent(pid.initial_carry(), jnp.asarray([manual], jnp.float32))
    _, output = step(pid, carry, jnp.float32(reading))
    assert float(output) == pytest.approx(manual + 0.5 * (10 - reading) * 0.5, abs=1e-3)


def test_a_start_from_an_unknown_action_is_the_start_from_nothing():
    pid = loop()
    carry = pid.sent(pid.initial_carry(), jnp.asarray([jnp.nan]))
    assert float(step(pid, carry, jnp.float32(4.0))[1]) == float(
        step(pid, pid.initial_carry(), jnp.float32(4.0))[1]
    )


@pytest.mark.parametrize("told", [PID.sent, PID.follow])
def test_loops_without_integral_do_not_track(told):
    pid = loop(ki=0.0)
    carry = told(pid, pid.initial_carry(), jnp.asarray([42.0]))
    carry, first = step(pid, carry, jnp.float32(4.0))
    carry = told(pid, carry, jnp.asarray([42.0]))
    assert float(first) == float(step(pid, carry, jnp.float32(4.0))[1]) == 17.0


def held_at_a_limit(kp, ki, tracking_time, conditional, noise):
    """Mean level of ``100 dy/dt = u - y`` under a PI loop with noise and ``0 <= u <= 100``.

    In float64 and the textbook's order, with the setpoint 10 and a period of one second.
    """
    level, integral, levels = 10.0, 10.0, []
    for error in 10.0 + noise:
        raised = integral + ki * (error - level)
        v = kp * (error - level) + raised
        u = min(max(v, 0.0), 100.0)
        if conditional:
            integral = integral if (v - u) * (error - level) > 0 else raised
        else:
            integral = raised + (u - v) / tracking_time
        level += (u - level) / 100
        levels.append(level)
    return np.mean(levels[len(levels) // 2 :])


SATURATED = {
    "conditional": (None, True, 10.4),
    "Ti": (100.0, False, 10.1),
    "dt": (1.0, False, 15.0),
}


@pytest.mark.parametrize("name", SATURATED)
def test_noise_that_touches_a_limit_does_not_ratchet_the_integral(name):
    """With all of the difference taken back in one period the level settled half as high again."""
    seconds, conditional, settled = SATURATED[name]
    noise = np.random.default_rng(0).normal(size=20_000)
    expected = held_at_a_limit(10.0, 0.1, seconds, conditional, noise)
    assert expected == pytest.approx(settled, abs=0.3)
    pid = dataclasses.replace(
        loop(kp=10.0, ki=0.1, low=0.0, dt=1.0),
        bias=jnp.zeros(1),
        tracking_time=None if name == "Ti" else jnp.full(1, seconds or 1.0),
        anti_windup="conditional" if conditional else "tracking",
    )

    def hold(state, error):
        carry, level = state
        carry, output = pid(carry, level - error[None])
        level = level + (output - level) / 100
        return (pid.sent(carry, output), level), level[0]

    at_rest = pid.sent(pid.initial_carry(), jnp.full(1, 10.0))
    start = at_rest, jnp.full(1, 10.0)
    levels = jax.lax.scan(hold, start, jnp.asarray(noise, jnp.float32))[1]
    assert float(levels[len(noise) // 2 :].mean()) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("anti_windup", ["tracking", "conditional"])
def test_a_filter_behind_the_loop_does_not_wind_it_up(anti_windup):
    """The loop would give 100; what it is told is 20, and the error changes sign after an hour."""
    pid = dataclasses.replace(loop(kp=2.0, ki=0.5), anti_windup=anti_windup)
    carry = pid.initial_carry()
    for reading in [0.0] * 100 + [10.5]:
        carry, output = step(pid, carry, jnp.float32(reading))
        carry = pid.sent(carry, jnp.minimum(output, 20.0)[None])
    assert float(output) < 20.0


def test_what_a_change_of_units_rounds_is_no_limit():
    """Told in other units and back, the proposal has another last digit; it was carried out."""
    pid = dataclasses.replace(loop(kp=0.1), anti_windup="conditional")
    carry, outputs = run(pid, [0.3])
    for sign in (-1, 1):
        rounded = pid.sent(carry, jnp.asarray(outputs * (1 + sign * 2**-22), jnp.float32))
        assert rounded.integral.tolist() == carry.integral.tolist()
    assert pid.sent(carry, jnp.asarray(outputs - 0.1, jnp.float32)).integral.tolist() == [0.0]


def test_the_dtype_of_the_gains_stays_under_float64():
    """Observations of float64 made the carry wider, and a scan refused it."""
    with jax.enable_x64(True):
        pid = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), loop(kd=1.0))
        mixed = dataclasses.replace(pid, bias=jnp.asarray([5.0], jnp.float64))
        for bank in (pid, mixed):
            carry = bank.sent(bank.initial_carry(), jnp.ones(1, jnp.float64))
            readings = jnp.linspace(0.0, 1.0, 5, dtype=jnp.float64)[:, None]
            carry, outputs = jax.lax.scan(lambda c, y, b=bank: b(c, y), carry, readings)
            assert {leaf.dtype.name for leaf in (outputs, *carry)} == {"float32"}
        wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), pid)
        start = wide.sent(wide.initial_carry(), jnp.ones(1))
        _, exact = jax.lax.scan(lambda c, y: wide(c, y), start, readings)
        assert exact.dtype == jnp.float64
        np.testing.assert_allclose(outputs, exact, rtol=1e-5)


@pytest.mark.parametrize("lost", [np.nan, np.inf, -np.inf])
def test_a_lost_measurement_is_nan_now_and_forgotten_later(lost):
    pid = loop(kd=2.0)
    carry, outputs = run(pid, [2.0, 3.0, lost, lost, 4.0])
    assert np.isnan(outputs[2:4]).all()
    assert np.isfinite(outputs[[0, 1, 4]]).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(carry))
    # The derivative rests on the change over the three periods that really passed.
    before, _ = run(pid, [2.0, 3.0])
    weight = 1.5 / (1.0 + 1.5)
    expected = before.derivative + weight * ((4.0 - 3.0) / 1.5 - before.derivative)
    np.testing.assert_allclose(carry.derivative, expected, rtol=1e-6)


@pytest.mark.parametrize("anti_windup", ["tracking", "conditional"])
def test_while_the_measurement_is_lost_the_loop_follows_what_is_sent(anti_windup):
    pid = dataclasses.replace(loop(), anti_windup=anti_windup)
    carry, _ = run(pid, [2.0, 3.0, np.nan])
    carry = pid.sent(carry, jnp.asarray([20.0]))
    _, output = step(pid, carry, jnp.float32(3.0))
    assert float(output) == pytest.approx(20 + 0.5 * 7 * 0.5)


def test_an_unknown_action_does_not_move_the_integral():
    pid = loop()
    carry, _ = run(pid, [2.0])
    after = pid.sent(carry, jnp.asarray([jnp.nan]))
    assert float(after.integral[0]) == float(carry.integral[0])


def test_proportional_integral_control_removes_the_offset_of_a_plant():
    """A first-order plant under a constant load settles at the setpoint."""
    pid, level, carry = loop(kp=1.0, ki=0.3), 0.0, None
    carry = pid.initial_carry()
    for _ in range(200):
        carry, output = step(pid, carry, jnp.float32(level))
        level += 0.5 * (-0.2 * level + 0.4 * float(output) - 3.0)
    assert level == pytest.approx(10.0, abs=1e-3)


def test_a_bank_is_its_loops_one_by_one():
    pair = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *[
        dataclasses.replace(pid, dt=jnp.zeros(0))
        for pid in (loop(kp=1.0), loop(kp=-3.0, setpoint=1.0, kd=0.5))
    ])  # fmt: skip
    both = dataclasses.replace(pair, dt=jnp.asarray(0.5), measured=(1, 0))
    carry, outputs = both.initial_carry(), []
    for readings in ([2.0, 3.0], [2.5, 1.0]):
        carry, output = both(carry, jnp.asarray(readings), None)
        outputs.append(np.asarray(output))
    np.testing.assert_allclose(np.stack(outputs)[:, 0], run(loop(kp=1.0), [3.0, 1.0])[1])
    np.testing.assert_allclose(
        np.stack(outputs)[:, 1], run(loop(kp=-3.0, setpoint=1.0, kd=0.5), [2.0, 2.5])[1]
    )


def test_form():
    pid = loop()
    carry = pid.initial_carry()
    assert isinstance(carry, PIDCarry)
    reading = jnp.ones(1)
    state_keeps_form(lambda carry, obs: pid(carry, obs, None), carry, reading)
    state_keeps_form(lambda carry, action: pid.sent(carry, action), carry, reading)
    state_keeps_form(lambda carry, action: pid.follow(carry, action), carry, reading)
    other = loop(kp=9.0, setpoint=-3.0)
    no_recompile(PID.__call__, (pid, carry, reading), (other, other.initial_carry(), reading + 1))


def interlocked(**changes):
    pid = dataclasses.replace(
        loop(),
        override_below=jnp.asarray([1.0]),
        override_cap=jnp.asarray([3.0]),
        override_output=(0,),
        override_measured=(0,),
    )
    return dataclasses.replace(pid, **changes)


@pytest.mark.parametrize(
    ("reading", "output"), [(2.0, 25.25), (0.0, 3.0), (np.nan, 3.0), (np.inf, 3.0), (-np.inf, 3.0)]
)
def test_a_lost_measurement_does_not_release_an_interlock(reading, output):
    bank = interlocked(override_measured=(1,))
    outputs = bank(bank.initial_carry(), jnp.asarray([1.0, reading]))[1]
    np.testing.assert_allclose(outputs, [output])


def each(name, things, shape=(2,)):
    return (
        f"{name} must have one number for each of the 1 {things}, "
        f"got shape {shape}; give it the shape (1,)"
    )


def indices(name, got, things):
    return f"{name} must be indices from 0 to 0, got {got}; number the 1 {things} from 0"


TWO = jnp.ones(2)
MISFITS = [
    *(
        ({name: TWO}, each(name, "loops in measured"))
        for name in ("kp", "ki", "kd", "tau", "setpoint", "bias", "low", "high", "tracking_time")
    ),
    *(
        ({name: TWO}, each(name, "overrides in override_output"))
        for name in ("override_below", "override_cap")
    ),
    ({"override_measured": (0, 0)}, each("override_measured", "overrides")),
    (
        {"dt": jnp.ones(1)},
        "dt must be one number, got shape (1,); index it, or use jax.vmap for several",
    ),
    ({"measured": (7,)}, indices("measured", (7,), "observations")),
    ({"measured": (-1,)}, indices("measured", (-1,), "observations")),
    ({"override_measured": (1,)}, indices("override_measured", (1,), "observations")),
    ({"override_output": (1,)}, indices("override_output", (1,), "loops")),
    (
        {"anti_windup": "none"},
        "anti_windup must be one of tracking, conditional, got 'none'; spell it as listed",
    ),
    (
        {"measured": (0.5,)},
        "an index of measured must be an integer that is known before tracing, got 0.5; "
        "give an int",
    ),
]
OUT_OF_RANGE = [
    (
        {"low": 101.0 + jnp.zeros(1)},
        "low must not be above high, got [101.] and [100.]; swap the ends that cross",
    ),
    ({"dt": jnp.asarray(-1.0)}, "dt must be finite and positive, got -1.0; check sign and unit"),
    ({"dt": jnp.asarray(0.0)}, "dt must be finite and positive, got 0.0; check sign and unit"),
    *(
        (
            {name: jnp.asarray([-1.0])},
            f"{name} must be finite and not negative, got [-1.]; check sign and unit",
        )
        for name in ("tau", "tracking_time")
    ),
    (
        {"override_cap": jnp.asarray([-101.0])},
        "override_cap must not be below low of its output, got [-101.] and [-100.]; "
        "raise the cap, jnp.inf for none",
    ),
]


@pytest.mark.parametrize(("changes", "message"), MISFITS + OUT_OF_RANGE)
def test_a_bank_that_does_not_fit_is_refused_when_called(changes, message):
    pid = interlocked(**changes)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        pid(loop().initial_carry(), jnp.ones(1))


@pytest.mark.parametrize(("changes", "message"), MISFITS)
def test_shapes_and_indices_are_refused_while_tracing_too(changes, message):
    pid = interlocked(**changes)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        jax.jit(PID.__call__)(pid, loop().initial_carry(), jnp.ones(1))


@pytest.mark.parametrize(("changes", "message"), OUT_OF_RANGE)
def test_known_numbers_are_refused_where_the_bank_is_a_constant_of_the_program(changes, message):
    pid = interlocked(**changes)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        jax.jit(lambda carry, obs: pid(carry, obs))(loop().initial_carry(), jnp.ones(1))


def test_limits_may_be_equal_or_infinite_and_a_filter_off():
    pid = interlocked(low=jnp.asarray([3.0]), high=jnp.asarray([3.0]), tau=jnp.zeros(1))
    assert pid(pid.initial_carry(), jnp.zeros(1))[1].tolist() == [3.0]
    pid = loop(low=-np.inf, high=np.inf, ki=0.0)
    assert pid(pid.initial_carry(), jnp.full(1, -1e6))[1].tolist() == [5 + 2 * (1e6 + 10)]


def test_an_observation_may_be_a_list():
    pid = loop()
    of_list, of_array = (pid(pid.initial_carry(), obs)[1] for obs in ([1.0], jnp.ones(1)))
    assert of_list.tolist() == of_array.tolist()


def test_what_is_given_to_a_bank_has_its_loops():
    pid = loop()
    carry = pid.initial_carry()
    axes = "obs must have the axes (obs), got shape (2, 1); for a batch of them use jax.vmap"
    with pytest.raises(ValueError, match=f"^{re.escape(axes)}$"):
        pid(carry, jnp.ones((2, 1)), None)
    with pytest.raises(ValueError, match=f"^{re.escape(each('action', 'loops'))}$"):
        pid.sent(carry, TWO)
    with pytest.raises(ValueError, match=f"^{re.escape(each('action', 'loops'))}$"):
        pid.follow(carry, TWO)
    for name in PIDCarry._fields:
        with pytest.raises(ValueError, match=f"^{re.escape(each(f'carry.{name}', 'loops'))}$"):
            pid(carry._replace(**{name: TWO}), jnp.ones(1))
