import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.control import PID
from neorl_core.testing import (
    ROWS as ROW_COUNT,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    mapped,
    reals,
    rows,
)

ACT, OBS = 2, 3
MEASURED = (2, 0)
STEPS = 6


def bank(tuning, **overrides):
    kp, ki, kd, tau, setpoint = tuning
    return PID(
        kp=kp,
        ki=ki,
        kd=kd,
        tau=tau,
        setpoint=setpoint,
        bias=jnp.asarray([1.0, -2.0]),
        low=jnp.asarray([-20.0, -30.0]),
        high=jnp.asarray([25.0, 15.0]),
        dt=jnp.asarray(0.5),
        override_below=overrides.get("below", jnp.zeros(0)),
        override_cap=overrides.get("cap", jnp.zeros(0)),
        measured=MEASURED,
        override_output=(0,) if overrides else (),
        override_measured=(1,) if overrides else (),
    )


def pid_run(tuning, readings, sent, reports):
    """Outputs along readings; after a step with its flag set, another action was sent."""
    pid = bank(tuning, below=jnp.asarray([-5.0]), cap=jnp.asarray([3.0]))
    start = pid, pid.initial_carry()
    (_, carry), outputs = jax.lax.scan(pid_step, start, (readings, sent, reports))
    return outputs, carry.integral, carry.derivative


def pid_step(state, row):
    (pid, carry), (reading, sent, reported) = state, row
    carry, output = pid(carry, reading, None)
    return (pid, pid.sent(carry, jnp.where(reported, sent, output))), output


def pid_by_hand(tuning, readings, sent, reports):
    """Each loop by itself, in the textbook's order, with the integral solved back for."""
    outputs = np.zeros((STEPS, 2))
    integrals, slopes = np.zeros(2), np.zeros(2)
    bias, low, high, dt = (1.0, -2.0), (-20.0, -30.0), (25.0, 15.0), 0.5
    for loop, channel in enumerate(MEASURED):
        kp, ki, kd, tau, setpoint = (values[loop] for values in tuning)
        integral, slope, before = 0.0, 0.0, None
        for step in range(STEPS):
            y = readings[step, channel]
            rate = 0.0 if before is None else (y - before) / dt
            slope = (tau * slope + dt * rate) / (tau + dt)
            integral += ki * (setpoint - y) * dt
            proportional = bias[loop] + kp * (setpoint - y) - kd * slope
            top = min(high[loop], 3.0) if loop == 0 and readings[step, 1] < -5 else high[loop]
            outputs[step, loop] = min(max(proportional + integral, low[loop]), top)
            received = sent[step, loop] if reports[step] else outputs[step, loop]
            if ki != 0:
                integral = received - proportional
            before = y
        integrals[loop], slopes[loop] = integral, slope
    return outputs, integrals, slopes


def saturation_is_left_at_once(tuning, readings, sent, reports):
    """However long it was saturated, an error of the other sign moves the output at once."""
    kp, ki, kd, tau, setpoint = tuning
    acting = kp + np.float32(0.125), ki + np.float32(0.125), 0 * kd, tau, setpoint
    below = np.zeros((ROW_COUNT, STEPS, OBS), np.float32)
    below[:, :, list(MEASURED)] = (setpoint - 500)[:, None, :]
    below[:, -1, list(MEASURED)] = setpoint + 1
    outputs = np.asarray(mapped(pid_run, acting, below, sent, np.zeros_like(reports))[0])
    assert_close(outputs[:, STEPS - 2, 1], np.full(ROW_COUNT, 15.0))
    assert np.all(outputs[:, -1, 1] < 15.0)


def inside_the_limits(tuning, readings, sent, reports):
    outputs = np.asarray(mapped(pid_run, tuning, readings, sent, reports)[0])
    assert np.all(outputs >= np.asarray([-20.0, -30.0]))
    assert np.all(outputs <= np.asarray([25.0, 15.0]))


GAIN = reals(0, 3)
TUNING = st.tuples(
    rows(2, elements=GAIN),
    rows(2, elements=st.one_of(st.just(0.0), reals(0.03125, 2))),
    rows(2, elements=GAIN),
    rows(2, elements=reals(0, 4)),
    rows(2, elements=reals(-20, 20)),
)
PID_SAMPLE = st.tuples(
    TUNING,
    rows(STEPS, OBS, elements=reals(-40, 40)),
    rows(STEPS, 2, elements=reals(-20, 15)),
    st.lists(st.tuples(*[st.booleans()] * STEPS), min_size=ROW_COUNT, max_size=ROW_COUNT).map(
        np.asarray
    ),
)
CALM = tuple(np.zeros(2) for _ in range(5))


def each(name, count, things, shape):
    """The refusal of a field that has not one number for each of some things."""
    return (
        f"{name} must have one number for each of the {count} {things}, "
        f"got shape {shape}; give it the shape ({count},)"
    )


def pid_misfits():
    """Tunings, readings and actions, of which one does not fit the two loops."""
    good = [jnp.ones(2)] * 5
    rest = jnp.ones((STEPS, OBS)), jnp.ones((STEPS, 2)), jnp.zeros(STEPS, bool)
    for place, name in enumerate(("kp", "ki", "kd", "tau", "setpoint")):
        wrong = jnp.ones(() if name == "tau" else 3)
        tuning = (*good[:place], wrong, *good[place + 1 :])
        yield Refusal(each(name, 2, "loops in measured", wrong.shape), (tuning, *rest))
    yield Refusal(
        "measured must be indices from 0 to 1, got (2, 0); number the 2 observations from 0",
        (tuple(good), rest[0][:, :2], *rest[1:]),
    )


ROWS = [
    Row(
        pid_run,
        name="PID",
        sample=PID_SAMPLE,
        oracle=pid_by_hand,
        laws=[saturation_is_left_at_once, inside_the_limits],
        exempt={"dtype": "bias and limits of the sample are float32"},
        edges=[
            Edge((CALM, np.zeros((STEPS, OBS)), np.zeros((STEPS, 2)), np.zeros(STEPS, bool))),
            Edge((CALM, np.full((STEPS, OBS), 1e6), np.zeros((STEPS, 2)), np.ones(STEPS, bool))),
        ],
        refuses=list(pid_misfits()),
        rtol=1e-4,
        atol=1e-5,
    ),
]
