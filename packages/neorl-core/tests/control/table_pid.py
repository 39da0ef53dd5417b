import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.control import PID, ConstantPolicy, follow
from neorl_core.testing import (
    ROWS as ROW_COUNT,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    integers,
    mapped,
    reals,
    rows,
)

OBS = 3
MEASURED = (2, 0)
STEPS = 6
OWN, LIMITED, FOLLOWS = range(3)


def bank(tuning, **overrides):
    kp, ki, kd, tau, setpoint, tracking_time = tuning
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
        override_below=jnp.asarray([-5.0]),
        override_cap=jnp.asarray([3.0]),
        measured=MEASURED,
        override_output=(0,),
        override_measured=(1,),
        tracking_time=tracking_time,
        **overrides,
    )


def pid_run(tuning, readings, received, reports, *, anti_windup):
    """Outputs along readings; ``reports`` says what became of each, and ``received`` how much."""
    pid = bank(tuning, anti_windup=anti_windup)
    start = pid, pid.initial_carry()
    (_, carry), outputs = jax.lax.scan(pid_step, start, (readings, received, reports))
    return outputs, carry.integral, carry.derivative


def pid_step(state, row):
    (pid, carry), (reading, received, report) = state, row
    carry, output = pid(carry, reading, None)
    limited = pid.sent(carry, jnp.where(report == LIMITED, received, output))
    followed = pid.follow(carry, received)
    carry = jax.tree.map(lambda a, b: jnp.where(report == FOLLOWS, a, b), followed, limited)
    return (pid, carry), output


def pid_by_hand(tuning, readings, received, reports, *, anti_windup):
    """Each loop by itself, in the textbook's order."""
    outputs = np.zeros((STEPS, 2))
    integrals, slopes = np.zeros(2), np.zeros(2)
    bias, low, high, dt = (1.0, -2.0), (-20.0, -30.0), (25.0, 15.0), 0.5
    for loop, channel in enumerate(MEASURED):
        kp, ki, kd, tau, setpoint, tracking_time = (values[loop] for values in tuning)
        integral, slope, before = 0.0, 0.0, None
        for step in range(STEPS):
            y = readings[step, channel]
            rate = 0.0 if before is None else (y - before) / dt
            slope = (tau * slope + dt * rate) / (tau + dt)
            rise = ki * (setpoint - y) * dt
            proportional = bias[loop] + kp * (setpoint - y) - kd * slope
            v = proportional + integral + rise
            top = min(high[loop], 3.0) if loop == 0 and readings[step, 1] < -5 else high[loop]
            outputs[step, loop] = min(max(v, low[loop]), top)
            u = outputs[step, loop] if reports[step] == OWN else received[step, loop]
            if ki == 0:
                pass
            elif reports[step] == FOLLOWS:
                integral = u - proportional
            elif anti_windup == "conditional":
                further = abs(u - v) > 2e-6 * (abs(u) + abs(proportional)) and (u - v) * rise < 0
                integral += 0 if further else rise
            else:
                integral += rise + min(dt / tracking_time if tracking_time else 1, 1) * (u - v)
            before = y
        integrals[loop], slopes[loop] = integral, slope
    return outputs, integrals, slopes


def saturation_is_left_at_once(tuning, readings, received, reports, *, anti_windup):
    """However long it was saturated, an error of the other sign moves the output at once."""
    kp, ki, kd, tau, setpoint, _ = tuning
    kp, ki = kp + np.float32(0.125), ki + np.float32(0.125)
    acting = kp, ki, 0 * kd, tau, setpoint, kp / ki
    below = np.zeros((ROW_COUNT, STEPS, OBS), np.float32)
    below[:, :, list(MEASURED)] = (setpoint - 500)[:, None, :]
    below[:, -1, list(MEASURED)] = setpoint + 1
    own = np.full_like(reports, OWN)
    run = mapped(pid_run, acting, below, received, own, anti_windup=anti_windup)
    outputs = np.asarray(run[0])
    assert_close(outputs[:, STEPS - 2, 1], np.full(ROW_COUNT, 15.0))
    assert np.all(outputs[:, -1, 1] < 15.0)


def inside_the_limits(tuning, readings, received, reports, *, anti_windup):
    run = mapped(pid_run, tuning, readings, received, reports, anti_windup=anti_windup)
    outputs = np.asarray(run[0])
    assert np.all(outputs >= np.asarray([-20.0, -30.0]))
    assert np.all(outputs <= np.asarray([25.0, 15.0]))


GAIN = reals(0, 3)
TUNING = st.tuples(
    rows(2, elements=GAIN),
    rows(2, elements=st.one_of(st.just(0.0), reals(0.03125, 2))),
    rows(2, elements=GAIN),
    rows(2, elements=reals(0, 4)),
    rows(2, elements=reals(-20, 20)),
    rows(2, elements=st.one_of(st.just(0.0), reals(0.125, 16))),
)
PID_SAMPLE = st.tuples(
    TUNING,
    rows(STEPS, OBS, elements=reals(-40, 40)),
    rows(STEPS, 2, elements=reals(-20, 15)),
    integers(STEPS, low=OWN, high=FOLLOWS),
)
CALM = tuple(np.zeros(2) for _ in range(6))
TRACKING = {"anti_windup": "tracking"}
SUMS_UP = "an integral of bfloat16 would stand still: a bank computes in float32 at least"


SLOW = tuple(np.full(2, value, np.float32) for value in (2.0, 0.25, 1.0, 1.0, 1.0, 8.0))


def taken_over(obs, action):
    """What a bank proposes after another controller has acted once; the plant stands still."""
    pid = bank(jax.tree.map(lambda leaf: jnp.asarray(leaf, obs.dtype), SLOW))
    carry, _ = pid(pid.initial_carry(), obs)
    return pid(follow(pid, carry, action), obs)[1]


def one_step_of_the_integral(obs, action):
    top = np.asarray([3.0 if obs[1] < -5 else 25.0, 15.0])
    return np.clip(action + 0.25 * (1.0 - obs[list(MEASURED)]) * 0.5, [-20.0, -30.0], top)


def a_policy_without_it_is_told_by_sent(obs, action):
    class Remembers(ConstantPolicy):
        def sent(self, carry, action):
            return action

    assert follow(Remembers(obs[0]), (), action) is action


def each(name, count, things, shape):
    """The refusal of a field that has not one number for each of some things."""
    return (
        f"{name} must have one number for each of the {count} {things}, "
        f"got shape {shape}; give it the shape ({count},)"
    )


def pid_misfits():
    """Tunings, readings and actions, of which one does not fit the two loops."""
    good = [jnp.ones(2)] * 6
    rest = jnp.ones((STEPS, OBS)), jnp.ones((STEPS, 2)), jnp.zeros(STEPS, jnp.int32)
    for place, name in enumerate(("kp", "ki", "kd", "tau", "setpoint", "tracking_time")):
        wrong = jnp.ones(() if name == "tau" else 3)
        tuning = (*good[:place], wrong, *good[place + 1 :])
        yield Refusal(each(name, 2, "loops in measured", wrong.shape), (tuning, *rest), TRACKING)
    yield Refusal(
        "measured must be indices from 0 to 1, got (2, 0); number the 2 observations from 0",
        (tuple(good), rest[0][:, :2], *rest[1:]),
        TRACKING,
    )
    yield Refusal(
        "anti_windup must be one of tracking, conditional, got 'none'; spell it as listed",
        (tuple(good), *rest),
        {"anti_windup": "none"},
    )


ROWS = [
    Row(
        pid_run,
        name="PID",
        sample=PID_SAMPLE,
        oracle=pid_by_hand,
        laws=[saturation_is_left_at_once, inside_the_limits],
        exempt={"dtype": SUMS_UP},
        options=st.sampled_from([TRACKING, {"anti_windup": "conditional"}]),
        edges=[
            Edge((CALM, np.full((STEPS, OBS), size), np.zeros((STEPS, 2)), report), TRACKING)
            for size, report in ((0.0, np.zeros(STEPS, np.int32)), (1e6, np.ones(STEPS, np.int32)))
        ],
        refuses=list(pid_misfits()),
        rtol=1e-4,
        atol=1e-5,
    ),
    Row(
        taken_over,
        name="follow",
        sample=st.tuples(rows(OBS, elements=reals(-40, 40)), rows(2, elements=reals(-20, 15))),
        oracle=one_step_of_the_integral,
        laws=[a_policy_without_it_is_told_by_sent],
        exempt={"dtype": SUMS_UP},
        rtol=1e-4,
        atol=1e-4,
    ),
]
