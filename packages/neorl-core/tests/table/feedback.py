import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core import Affine, Channel, as_arrays, highs, lows, standardiser, unit_interval
from neorl_core.control import PID, BaseStock, ConstantPolicy, StateFeedback, UniformPolicy
from neorl_core.projections import limit_rate, project_box
from neorl_core.testing import (
    ROWS as ROW_COUNT,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    integers,
    keys,
    mapped,
    reals,
    rows,
)

ACT, OBS = 2, 3
RAW_KEY = np.zeros(2, np.uint32)
RANGES = (Channel("level", "m", 0.0, 4.0), Channel("flow", "m3/h", -60.0, 20.0))


# Limits.


def nearest_in_the_box(x, low, high):
    return np.asarray([sorted((a, v, b))[1] for v, a, b in zip(x, low, high, strict=True)])


def idempotent_and_not_expansive(x, low, high):
    once = np.asarray(mapped(project_box, x, low, high))
    np.testing.assert_array_equal(mapped(project_box, once, low, high), once)
    other = np.asarray(mapped(project_box, x + 2, low, high))
    assert np.all(np.abs(other - once) <= 2 + 1e-4)
    assert np.all((once >= low) & (once <= high))


def box(x, low, width):
    return project_box(x, low, low + width)


def boxed_by_hand(x, low, width):
    return nearest_in_the_box(x, low, np.float64(np.float32(low) + np.float32(width)))


def box_law(x, low, width):
    idempotent_and_not_expansive(x, low, low + width)


def reachable_by_cases(x, previous, rate, *, dt):
    reach = rate * dt
    return np.asarray(
        [p + min(max(v - p, -r), r) for v, p, r in zip(x, previous, reach, strict=True)]
    )


def arrives_to_the_bit_and_never_too_fast(x, previous, rate, *, dt):
    free = np.full_like(rate, np.inf)
    np.testing.assert_array_equal(mapped(limit_rate, x, previous, free, dt=dt), x)
    moved = np.abs(np.asarray(mapped(limit_rate, x, previous, rate, dt=dt)) - previous)
    assert np.all(moved <= rate * dt * (1 + 1e-5) + 1e-4)
    held = mapped(limit_rate, x, previous, np.zeros_like(rate), dt=dt)
    np.testing.assert_array_equal(held, previous)


# Scaling.


def there_and_back(offset, scale, physical):
    affine = Affine(offset, scale)
    scaled = affine.to_scaled(physical)
    return scaled, affine.to_physical(scaled)


def scaled_by_hand(offset, scale, physical):
    return (physical - offset) / scale, physical


def ends_of_the_range(offset, scale, physical):
    ends, _ = mapped(there_and_back, offset, scale, np.stack([offset - scale, offset + scale], 1))
    assert_close(ends, np.broadcast_to(np.asarray([[-1.0], [1.0]]), ends.shape), atol=1e-3)


def in_the_unit_interval(physical):
    scaling = unit_interval(RANGES)
    scaled = scaling.to_scaled(physical)
    return scaled, scaling.to_physical(scaled)


def between_the_ends(physical):
    share = (physical - np.asarray(lows(RANGES))) / np.subtract(highs(RANGES), lows(RANGES))
    return 2 * share - 1, physical


def ends_become_plus_and_minus_one(physical):
    for ends, expected in ((lows(RANGES), -1.0), (highs(RANGES), 1.0)):
        row = np.broadcast_to(np.asarray(ends, np.float32), physical.shape)
        assert_close(mapped(in_the_unit_interval, row)[0], np.full(row.shape, expected))


def numbers_and_arrays(x, count):
    return as_arrays({"x": x, "more": [count, 2, 0.5, True]})


def the_same_in_numpy(x, count):
    return {"x": x, "more": [count, np.int64(2), np.float64(0.5), np.bool_(True)]}


def twice_is_once(x, count):
    once = as_arrays({"x": x, "n": 3, "share": 0.25})
    for first, second in zip(once.values(), as_arrays(once).values(), strict=True):
        assert first is second
    assert once["n"].dtype == "int32"
    assert once["share"].dtype == "float32"
    assert not once["share"].weak_type


def standardised(mean, std, x, *, epsilon):
    return standardiser(mean, std, epsilon=epsilon).to_scaled(x)


def standardised_by_hand(mean, std, x, *, epsilon):
    return (x - mean) / (std + epsilon * np.maximum(1, np.abs(mean)))


def one_std_is_at_most_one(mean, std, x, *, epsilon):
    moved = np.asarray(mapped(standardised, mean, std, (mean + std)[:, None], epsilon=epsilon))
    assert np.all(np.abs(moved) <= 1 + 1e-3)


# Policies, by one step.


def feedback_step(gain, setpoint, bias, obs):
    policy = StateFeedback(gain, setpoint, bias, jnp.full(ACT, -50.0), jnp.full(ACT, 50.0))
    _, action = policy(policy.sent(policy.initial_carry(), bias), obs)
    return action


def feedback_by_loops(gain, setpoint, bias, obs):
    wanted = [
        b - sum(k * (y - r) for k, y, r in zip(row, obs, setpoint, strict=True))
        for row, b in zip(gain, bias, strict=True)
    ]
    return np.clip(wanted, -50, 50)


def at_the_setpoint_it_rests(gain, setpoint, bias, obs):
    assert_close(mapped(feedback_step, gain, setpoint, bias, setpoint), np.clip(bias, -50, 50))


def order(level, position, obs):
    policy = BaseStock(level, position, jnp.zeros(ACT), jnp.full(ACT, 60.0))
    _, action = policy(policy.sent(policy.initial_carry(), level), obs)
    return action


def order_by_loops(level, position, obs):
    have = [sum(w * y for w, y in zip(row, obs, strict=True)) for row in position]
    return np.asarray([min(max(s - h, 0.0), 60.0) for s, h in zip(level, have, strict=True)])


def ordering_restores_the_level(level, position, obs):
    """Where no bound is met, position plus order is the level."""
    placed = np.asarray(mapped(order, level, position, obs))
    have = np.einsum("rao,ro->ra", position.astype(np.float64), obs)
    inside = (placed > 0) & (placed < 60)
    np.testing.assert_allclose((have + placed)[inside], level[inside], rtol=1e-3, atol=1e-2)


def constant(action, obs, key):
    policy = ConstantPolicy(action)
    return policy(policy.sent(policy.initial_carry(), obs), obs, key)[1]


def the_action(action, obs, key):
    return action


def blind(action, obs, key):
    np.testing.assert_array_equal(mapped(constant, action, obs + 1, key), action)


def uniform(low, obs, key):
    policy = UniformPolicy(low, low + 2.0)
    return policy(policy.sent(policy.initial_carry(), obs), obs, key)[1]


def within_the_bounds(low, obs, key):
    action = np.asarray(mapped(uniform, low, obs, key))
    assert np.all((action >= low) & (action <= low + 2.0))
    np.testing.assert_array_equal(mapped(uniform, low, obs + 1, key), action)


# The PID, by sequences. Two loops on observations 2 and 0.

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
LOWS, HIGHS = rows(ACT, elements=reals(-9, -1)), rows(ACT, elements=reals(1, 9))
ONE = jnp.ones(1)
SECOND = {"dt": 1.0}
SAME = "; index or reshape one of them, nothing is broadcast here"


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


POSITIVE = reals(0.0625, 50)

ROWS = [
    Row(
        in_the_unit_interval,
        name="unit_interval",
        sample=st.tuples(rows(len(RANGES))),
        oracle=between_the_ends,
        laws=[ends_become_plus_and_minus_one],
        edges=[Edge((np.zeros(len(RANGES)),)), Edge((np.full(len(RANGES), 1e6),))],
        dtypes=("float32",),
        atol=1e-5,
    ),
    Row(
        numbers_and_arrays,
        name="as_arrays",
        sample=st.tuples(rows(4), integers(low=-9, high=9)),
        oracle=the_same_in_numpy,
        laws=[twice_is_once],
        edges=[Edge((np.zeros(0), np.int32(0)))],
        exempt={"dtype": "a number becomes float32 whatever the arrays beside it are"},
        refuses=[
            Refusal("'x'", ("relu", 1), error=TypeError),
            Refusal("does not fit in int32", (1.0, 2**31)),
        ],
    ),
    Row(
        box,
        name="project_box",
        sample=st.tuples(rows(ACT), rows(ACT), rows(ACT, elements=reals(0, 50))),
        oracle=boxed_by_hand,
        laws=[box_law],
        edges=[Edge((np.zeros(2), np.zeros(2), np.zeros(2))), Edge((np.zeros(0),) * 3)],
    ),
    Row(
        project_box,
        sample=st.tuples(rows(ACT), LOWS, HIGHS),
        oracle=nearest_in_the_box,
        laws=[idempotent_and_not_expansive],
        refuses=[
            Refusal("x and low must have one shape", (jnp.ones(2), jnp.ones(1), jnp.ones(2))),
            Refusal("x and high must have one shape", (jnp.ones(2), jnp.ones(2), jnp.ones(3))),
            Refusal("low must not be above high", (jnp.ones(1), jnp.ones(1), jnp.zeros(1))),
        ],
    ),
    Row(
        limit_rate,
        sample=st.tuples(rows(ACT), rows(ACT), rows(ACT, elements=reals(0, 50))),
        options=reals(0.125, 4).map(lambda dt: {"dt": dt}),
        oracle=reachable_by_cases,
        laws=[arrives_to_the_bit_and_never_too_fast],
        edges=[
            Edge((np.ones(2), np.ones(2), np.zeros(2)), {"dt": 1.0}),
            Edge((np.zeros(0), np.zeros(0), np.zeros(0)), {"dt": 1.0}),
        ],
        refuses=[
            Refusal(
                "x and previous must have one shape",
                (jnp.ones(2), jnp.ones(1), jnp.ones(2)),
                {"dt": 1.0},
            ),
            Refusal(
                "x and rate must have one shape",
                (jnp.ones(2), jnp.ones(2), jnp.ones(1)),
                {"dt": 1.0},
            ),
            Refusal("rate must not be negative", (ONE, ONE, -ONE), SECOND),
            Refusal("rate must not be", (ONE, ONE, jnp.nan * ONE), SECOND),
            Refusal(
                "dt must be finite and positive",
                (jnp.ones(1), jnp.ones(1), jnp.ones(1)),
                {"dt": 0.0},
            ),
            Refusal(
                "dt must be one number, got shape (2, 1); index it, or use jax.vmap for several",
                (jnp.ones(2), jnp.ones(2), jnp.ones(2)),
                {"dt": jnp.ones((2, 1))},
            ),
        ],
    ),
    Row(
        there_and_back,
        name="Affine",
        sample=st.tuples(rows(OBS), rows(OBS, elements=POSITIVE), rows(4, OBS)),
        oracle=scaled_by_hand,
        laws=[ends_of_the_range],
        edges=[Edge((np.zeros(3), np.ones(3), np.zeros((0, 3))))],
        refuses=[
            Refusal(
                f"offset and scale must have one shape, got (3,) and (1,){SAME}",
                (jnp.ones(3), jnp.ones(1), jnp.ones(3)),
            ),
            Refusal(
                "offset must have the axes (channel), got shape (); for a batch of them use "
                "jax.vmap",
                (jnp.ones(()), jnp.ones(()), jnp.ones(3)),
            ),
            *(
                Refusal(
                    "physical must have the 3 channels of the map along its last axis, "
                    f"got shape {shape}; check the order of its axes",
                    (jnp.ones(3), jnp.ones(3), jnp.ones(shape)),
                )
                for shape in ((3, 1), (4,), ())
            ),
            *(
                Refusal(
                    f"scale must be finite and positive, got [{text}]; check sign and unit",
                    (jnp.ones(1), jnp.asarray([scale]), jnp.ones(1)),
                )
                for scale, text in ((0.0, "0."), (-2.0, "-2."), (jnp.nan, "nan"))
            ),
        ],
        rtol=1e-4,
        atol=1e-4,
    ),
    Row(
        standardised,
        name="standardiser",
        sample=st.tuples(rows(OBS), rows(OBS, elements=reals(0, 50)), rows(4, OBS)),
        options={"epsilon": 1e-3},
        oracle=standardised_by_hand,
        laws=[one_std_is_at_most_one],
        refuses=[
            Refusal(
                "mean and std must have one shape",
                (jnp.ones(2), jnp.ones(3), jnp.ones(2)),
                {"epsilon": 1e-3},
            ),
            Refusal(
                "std must be finite and not negative",
                (jnp.ones(2), -jnp.ones(2), jnp.ones(2)),
                {"epsilon": 1e-3},
            ),
            Refusal(
                "epsilon must be finite and positive",
                (jnp.ones(2), jnp.ones(2), jnp.ones(2)),
                {"epsilon": 0.0},
            ),
        ],
        edges=[Edge((np.zeros(3), np.zeros(3), np.ones((4, 3))), {"epsilon": 1e-3})],
        rtol=1e-4,
    ),
    Row(
        feedback_step,
        name="StateFeedback",
        sample=st.tuples(rows(ACT, OBS, elements=reals(-5, 5)), rows(OBS), rows(ACT), rows(OBS)),
        oracle=feedback_by_loops,
        laws=[at_the_setpoint_it_rests],
        exempt={"dtype": "the limits of the sample are float32"},
        edges=[Edge((np.ones((2, 3)), np.zeros(3), np.full(2, 50.0), np.zeros(3)))],
        refuses=[
            Refusal(
                each("obs", 3, "columns of gain", "(4, 3)"),
                (jnp.ones((2, 3)), jnp.ones(3), jnp.ones(2), jnp.ones((4, 3))),
            ),
            Refusal(
                each("setpoint", 3, "columns of gain", "(1,)"),
                (jnp.ones((2, 3)), jnp.ones(1), jnp.ones(2), jnp.ones(3)),
            ),
            Refusal(
                each("bias", 2, "rows of gain", "(3,)"),
                (jnp.ones((2, 3)), jnp.ones(3), jnp.ones(3), jnp.ones(3)),
            ),
            Refusal(
                each("low", 1, "actions", "(2,)"),
                (jnp.ones((1, 3)), jnp.ones(3), jnp.ones(1), jnp.ones(3)),
            ),
            Refusal(
                "gain must have the axes (act, obs), got shape (3,); for a batch of them use "
                "jax.vmap",
                (jnp.ones(3), jnp.ones(3), jnp.ones(2), jnp.ones(3)),
            ),
        ],
        atol=1e-5,
    ),
    Row(
        order,
        name="BaseStock",
        sample=st.tuples(
            rows(ACT), rows(ACT, OBS, elements=st.sampled_from([-1.0, 0.0, 1.0])), rows(OBS)
        ),
        oracle=order_by_loops,
        laws=[ordering_restores_the_level],
        exempt={"dtype": "the limits of the sample are float32"},
        edges=[Edge((np.zeros(2), np.ones((2, 3)), np.zeros(3)))],
        refuses=[
            Refusal(
                each("obs", 3, "columns of position", "(4,)"),
                (jnp.ones(2), jnp.ones((2, 3)), jnp.ones(4)),
            ),
            Refusal(
                each("level", 2, "rows of position", "(1,)"),
                (jnp.ones(1), jnp.ones((2, 3)), jnp.ones(3)),
            ),
            Refusal(
                each("low", 1, "actions", "(2,)"),
                (jnp.ones(1), jnp.ones((1, 3)), jnp.ones(3)),
            ),
            Refusal(
                "position must have the axes (act, obs), got shape (3,); for a batch of them use "
                "jax.vmap",
                (jnp.ones(1), jnp.ones(3), jnp.ones(3)),
            ),
        ],
    ),
    Row(
        constant,
        name="ConstantPolicy",
        sample=st.tuples(rows(ACT), rows(OBS), keys()),
        oracle=the_action,
        laws=[blind],
        edges=[
            Edge((np.zeros(ACT), np.zeros(OBS), RAW_KEY)),
            Edge((np.full(ACT, 1e30), np.full(OBS, -1e30), RAW_KEY)),
            Edge((np.zeros(0), np.zeros(0), RAW_KEY)),
        ],
        refuses=[
            Refusal(
                "action must have the axes (act), got shape (); for a batch of them use jax.vmap",
                (jnp.ones(()), jnp.ones(3), jax.random.key(0)),
            )
        ],
    ),
    Row(
        uniform,
        name="UniformPolicy",
        sample=st.tuples(rows(ACT), rows(OBS), keys()),
        oracle=None,
        exempt={"oracle": "a draw; its distribution is tested in test_distributions.py"},
        laws=[within_the_bounds],
        edges=[
            Edge((np.zeros(ACT), np.zeros(OBS), RAW_KEY)),
            Edge((np.full(ACT, 1e30), np.zeros(OBS), RAW_KEY)),  # The width is below one rounding.
            Edge((np.zeros(0), np.zeros(0), RAW_KEY)),
        ],
        refuses=[
            Refusal(
                "low must have the axes (act), got shape (2, 1); for a batch of them use jax.vmap",
                (jnp.ones((2, 1)), jnp.ones(3), jax.random.key(0)),
            ),
            *(
                Refusal(
                    "low must not be above high, nor infinitely far below, got "
                    f"[{end}] and [{end}]; give the range of every action",
                    (jnp.asarray([end]), jnp.ones(3), jax.random.key(0)),
                )
                for end in (jnp.inf, jnp.nan)
            ),
        ],
    ),
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
