"""Whatever comes in, what comes out is finite, admissible and explained."""

import os
from fractions import Fraction

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_safety.constraints import ActionConstraints, action_constraints
from neorl_safety.filters import Context, Flag, Limit, filter_action, flag_names

TINY, LARGEST = np.finfo(np.float32).tiny, np.finfo(np.float32).max


def flush(x):
    return np.where(np.abs(x) < TINY, np.copysign(np.float32(0), x), x)


def single_jit(constraints, context, action):
    call = jax.jit(filter_action)
    rows = range(action.shape[0])
    host = jax.tree.map(np.asarray, (constraints, context, action))
    results = [call(*jax.tree.map(lambda leaf: leaf[i], host)) for i in rows]  # noqa: B023
    return jax.tree.map(lambda *leaves: np.stack(leaves), *results)


def single_eager(constraints, context, action):
    rows = jax.tree.map(np.asarray, (constraints, context, action))
    results = [
        filter_action(*jax.tree.map(lambda leaf: jnp.asarray(leaf[i]), rows))  # noqa: B023
        for i in range(action.shape[0])
    ]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *results)


VARIANTS = {
    "vmap": jax.vmap(filter_action),
    "jit of vmap": jax.jit(jax.vmap(filter_action)),
    "jit": single_jit,
    "eager": single_eager,
}
# Operation by operation, one case at a time, costs 5 ms a case: all 10,000 run in the nightly
# profile, one in 37 otherwise (the eager vmap runs the same operations on all of them). In plain
# Python, with exact fractions, one in five.
NIGHT = os.environ.get("NEORL_HYPOTHESIS_PROFILE") == "nightly"
EAGER_STRIDE, PYTHON_STRIDE = (1, 1) if NIGHT else (37, 5)


@pytest.fixture(scope="module")
def reference(hostile_cases):
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(filter_action))(*hostile_cases))


def limits_in_numpy(constraints):
    """The stated limits and whether they are well formed, channel by channel."""
    raw = jax.tree.map(np.asarray, constraints)
    c = jax.tree.map(flush, raw)
    well = np.isfinite([c.low, c.high, c.actuator_low, c.actuator_high]).all(axis=0)
    well &= (c.low <= c.high) & (c.actuator_low <= c.actuator_high)
    well &= (c.actuator_low <= c.low) & (c.high <= c.actuator_high)
    well &= (c.rate_up >= 0) & (c.rate_down >= 0)
    for leaf in jax.tree.leaves(raw):
        well &= ~((leaf != 0) & (np.abs(leaf) < TINY))
    return c, well


# What is not compiled has the night: guards run compiled, and an eager call compiles operations.
BY_DAY = ("jit of vmap", "jit")


@pytest.mark.parametrize(
    "variant",
    [pytest.param(v, marks=[] if v in BY_DAY else [pytest.mark.nightly]) for v in VARIANTS],
)
def test_every_hostile_case_gives_a_finite_admissible_action(variant, hostile_cases, reference):
    stride = EAGER_STRIDE if variant == "eager" else 1
    cases, expected = jax.tree.map(lambda leaf: leaf[::stride], (hostile_cases, reference))
    assert stride > 1 or cases[2].shape == (10_000, 2)
    action, report = jax.tree.map(np.asarray, VARIANTS[variant](*cases))
    assert_admissible(action, *cases[:2])
    assert np.isfinite(report.intervention).all()
    np.testing.assert_array_equal(action, expected[0])
    jax.tree.map(np.testing.assert_array_equal, report, expected[1])


def assert_admissible(action, constraints, context):
    assert np.isfinite(action).all()
    c, well = limits_in_numpy(constraints)
    previous, dt = np.asarray(context.previous), np.asarray(context.dt)[:, None]
    known = np.isfinite(previous)
    start = np.clip(flush(previous), flush(c.actuator_low), flush(c.actuator_high))
    reachable = (action >= flush(c.actuator_low)) & (action <= flush(c.actuator_high))
    assert reachable[well].all()
    in_box = (action >= flush(c.low)) & (action <= flush(c.high))
    began_in_box = ~known | ((start >= flush(c.low)) & (start <= flush(c.high)))
    assert in_box[well & began_in_box].all()
    period = np.where(np.isfinite(dt) & (dt > 0), dt, 0).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        # The product is a float32; the sum is rounded towards the start, so no slack for it.
        rise = np.where(np.isinf(c.rate_up), np.inf, c.rate_up * period.astype(np.float32))
        fall = np.where(np.isinf(c.rate_down), np.inf, c.rate_down * period.astype(np.float32))
        moved = action.astype(np.float64) - start
    slow = (moved <= rise + TINY) & (moved >= -fall - TINY)
    assert slow[well & known].all()
    assert well.mean() > 0.5


def interval(low, high):
    """What is left of two limits when malformed ones are dropped."""
    low = low if np.isfinite(low) else -LARGEST
    high = high if np.isfinite(high) else LARGEST
    return (-LARGEST, LARGEST) if low > high else (low, high)


def nearest(value, low, high):
    return low if value < low else high if value > high else value


def step_of(rate, dt, malformed):
    """The largest change; none where the rate is malformed."""
    if not rate >= 0 or malformed:
        return np.float32(0)
    return np.float32(np.inf) if rate == np.inf else np.minimum(flush(rate * dt), LARGEST)


def towards(start, change):
    """The float32 next to ``start + change`` that is no further from ``start``."""
    if np.isinf(change):
        return change
    total = start + change
    if np.isfinite(total):
        exact = Fraction(float(start)) + Fraction(float(change))
        beyond = Fraction(float(total)) - exact
        if beyond > 0 if change >= 0 else beyond < 0:
            total = np.nextafter(total, start)
    return total


def channel_in_python(c, i, previous, fallback, request):
    """Start, backup and applied action of one channel, by the words of the documentation."""
    actuator = interval(c.actuator_low[i], c.actuator_high[i])
    box = interval(c.low[i], c.high[i])
    box = max(box[0], actuator[0]), min(box[1], actuator[1])
    if box[0] > box[1]:
        box = actuator
    if np.isfinite(previous):
        start = nearest(previous, *actuator)
    middle = box[0] / 2 + box[1] / 2 if max(-box[0], box[1]) < LARGEST else np.float32(0)
    backup = fallback
    if not np.isfinite(fallback):
        backup = start if np.isfinite(previous) else middle
    backup = nearest(backup, *box)
    if not np.isfinite(previous):
        start = backup
    request = backup if request is None else request
    return start, box, actuator, nearest(request, *box), request


def filter_in_python(constraints, context, action):
    """The whole filter for one case, in plain Python on float32 scalars."""
    c, well = limits_in_numpy(constraints)
    raw = jax.tree.map(np.asarray, constraints)
    request = action
    action, previous, fallback = (
        flush(x) for x in (action, context.previous, context.fallback_action)
    )
    dt = flush(context.dt)
    bad_dt = not (np.isfinite(dt) and dt > 0)
    flags = Flag(0)
    flags |= 0 if np.isfinite(action).all() else Flag.REQUEST_NONFINITE
    flags |= 0 if np.isfinite(context.obs).all() else Flag.OBSERVATION_NONFINITE
    flags |= 0 if well.all() else Flag.BAD_CONSTRAINT
    used = flags != 0
    flags |= Flag.FALLBACK_USED if used else 0
    flags |= Flag.BAD_PERIOD if bad_dt else 0
    subnormal = (request != 0) & (np.abs(request) < TINY)
    flags |= Flag.REQUEST_SUBNORMAL if subnormal.any() else 0
    applied, limits = [], []
    for i in range(len(action)):
        start, box, actuator, boxed, request = channel_in_python(
            c, i, previous[i], fallback[i], None if used else action[i]
        )
        dt_i = np.float32(0) if bad_dt else dt
        tiny = [0 < abs(rate[i]) < TINY for rate in (raw.rate_down, raw.rate_up)]
        lowest = towards(start, -step_of(c.rate_down[i], dt_i, tiny[0]))
        highest = towards(start, step_of(c.rate_up[i], dt_i, tiny[1]))
        applied.append(nearest(boxed, lowest, highest))
        limits.append(
            Limit.LOW * (request < box[0])
            | Limit.HIGH * (request > box[1])
            | Limit.RATE_DOWN * (boxed < lowest)
            | Limit.RATE_UP * (boxed > highest)
        )
        known = np.isfinite(previous[i])
        flags |= 0 if known else Flag.PREVIOUS_UNKNOWN
        beyond = known and not actuator[0] <= previous[i] <= actuator[1]
        flags |= Flag.PREVIOUS_OUT_OF_RANGE if beyond else 0
        flags |= 0 if box[0] <= start <= box[1] else Flag.PREVIOUS_OUTSIDE_BOX
        finite = np.isfinite(fallback[i])
        flags |= 0 if finite else Flag.FALLBACK_NONFINITE
        error = 4 * np.finfo(np.float32).eps * abs(fallback[i])
        clipped = finite and (fallback[i] + error < box[0] or fallback[i] - error > box[1])
        flags |= Flag.FALLBACK_CLIPPED if clipped else 0
        flags |= Flag.BOX_ACTIVE if limits[-1] & (Limit.LOW | Limit.HIGH) else 0
        flags |= Flag.RATE_ACTIVE if limits[-1] & (Limit.RATE_DOWN | Limit.RATE_UP) else 0
    return applied, int(flags), [int(limit) for limit in limits]


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_every_hostile_case_agrees_with_plain_python(hostile_cases, reference):
    host, (action, report) = jax.tree.map(
        lambda leaf: np.asarray(leaf[::PYTHON_STRIDE]), (hostile_cases, reference)
    )
    count = len(host[2])
    answers = [filter_in_python(*jax.tree.map(lambda leaf: leaf[i], host)) for i in range(count)]  # noqa: B023
    applied, flags, limits = (np.array(column) for column in zip(*answers, strict=True))
    np.testing.assert_array_equal(report.flags, flags)
    np.testing.assert_array_equal(report.limits, limits)
    np.testing.assert_allclose(action, applied.astype(np.float32), rtol=1e-6, atol=1e-37)
    request = np.where(np.isfinite(host[2]), host[2], np.nan).astype(np.float64)
    apart = np.minimum(np.abs(action - request), LARGEST)
    np.testing.assert_allclose(report.intervention, np.nan_to_num(apart), rtol=1e-5, atol=1e-37)
    assert len(set(flags.tolist())) > (200 if NIGHT else 100)


def test_what_changed_is_explained_by_a_flag(reference):
    _, report = reference
    changed = (report.intervention > 0).any(axis=1)
    explained = Flag.FALLBACK_USED | Flag.BOX_ACTIVE | Flag.RATE_ACTIVE | Flag.REQUEST_SUBNORMAL
    assert ((report.flags & explained) != 0)[changed].all()


def test_a_request_within_all_limits_passes_to_the_bit(hostile_cases, reference):
    action = np.asarray(hostile_cases[2])
    applied, report = reference
    untouched = (report.flags & (Flag.FALLBACK_USED | Flag.BOX_ACTIVE | Flag.RATE_ACTIVE)) == 0
    assert untouched.sum() > 50
    untouched &= (report.flags & Flag.REQUEST_SUBNORMAL) == 0
    assert (applied.view(np.uint32) == action.view(np.uint32))[untouched].all()


def test_filtering_twice_changes_nothing(hostile_cases, reference):
    constraints, context, _ = hostile_cases
    again, _ = jax.jit(jax.vmap(filter_action))(constraints, context, jnp.asarray(reference[0]))
    np.testing.assert_array_equal(np.asarray(again), reference[0])


def test_without_a_fallback_a_channel_holds_and_without_history_takes_mid_range(spec):
    limits = action_constraints(spec)
    nothing = jnp.full((2,), jnp.nan)
    context = Context(jnp.ones(2), jnp.array([30.0, jnp.nan]), jnp.array(60.0), nothing)
    action, report = filter_action(limits, context, nothing)
    assert action.tolist() == [30.0, 300.0]
    assert int(report.flags) == (
        Flag.REQUEST_NONFINITE
        | Flag.PREVIOUS_UNKNOWN
        | Flag.FALLBACK_NONFINITE
        | Flag.FALLBACK_USED
    )


def test_an_unknown_previous_action_starts_from_the_clipped_fallback(spec):
    limits = action_constraints(spec, [0.25, 0.05])
    nothing = jnp.full((2,), jnp.nan)
    context = Context(jnp.ones(2), nothing, jnp.array(60.0), jnp.array([140.0, 310.0]))
    action, report = filter_action(limits, context, jnp.array([0.0, 320.0]))
    np.testing.assert_allclose(action, [85.0, 313.0])
    assert int(report.flags) & Flag.FALLBACK_CLIPPED


@pytest.mark.parametrize(("places", "clipped"), [(2, 0), (16, Flag.FALLBACK_CLIPPED)])
def test_a_fallback_at_a_limit_up_to_rounding_is_not_called_clipped(spec, places, clipped):
    limits = action_constraints(spec, [0.25, 0.05])
    high = np.float32(100)
    fallback = jnp.array([high + places * np.spacing(high), 300.0])
    context = Context(jnp.ones(2), jnp.array([90.0, 300.0]), jnp.array(60.0), fallback)
    _, report = filter_action(limits, context, jnp.array([95.0, 300.0]))
    assert int(report.flags) & Flag.FALLBACK_CLIPPED == clipped


def test_from_outside_a_tightened_box_the_action_returns_at_the_allowed_rate(spec):
    limits = action_constraints(spec, [0.25, None], low=[40.0, 290.0], high=[60.0, 310.0])
    context = Context(
        jnp.ones(2), jnp.array([90.0, 300.0]), jnp.array(60.0), jnp.array([50.0, 300.0])
    )
    action, report = filter_action(limits, context, jnp.array([95.0, 300.0]))
    np.testing.assert_allclose(action, [75.0, 300.0])
    assert int(report.flags) & Flag.PREVIOUS_OUTSIDE_BOX
    beyond = context._replace(previous=jnp.array([3.4e38, 300.0]))
    action, report = filter_action(limits, beyond, jnp.array([95.0, 300.0]))
    np.testing.assert_allclose(action, [85.0, 300.0])
    assert int(report.flags) & Flag.PREVIOUS_OUT_OF_RANGE


def step_from(previous, rate, dt=1.0, ends=3.4e38, request=3.4e38):
    """One step of one wide channel."""
    one = np.float32([1])
    limits = ActionConstraints(
        -ends * one, ends * one, rate * one, rate * one, -ends * one, ends * one, ("u",), ("1",)
    )
    context = Context(jnp.ones(1), jnp.float32([previous]), jnp.float32(dt), jnp.zeros(1))
    action, report = filter_action(limits, context, jnp.float32([request]))
    return float(action[0]), set(flag_names(int(report.flags)))


def test_a_step_is_never_rounded_up_over_the_rate():
    """Floats near 1e9 lie 64 apart: 33 a second allows no step, and 65 one of 64."""
    assert step_from(1e9, 33.0, ends=2e9)[0] == 1e9
    assert step_from(1e9, 65.0, ends=2e9)[0] == 1e9 + 64
    assert step_from(1e9, 33.0, ends=2e9, request=-2e9)[0] == 1e9


def test_a_rate_whose_product_overflows_is_still_a_limit():
    moved = step_from(-3e38, 1e38, dt=4.0)[0] + 3e38
    assert moved <= 4e38


def test_a_malformed_rate_admits_no_movement(spec):
    limits = action_constraints(spec)
    for rate in (np.nan, -1.0, 1e-40):
        bad = eqx.tree_at(lambda c: c.rate_up, limits, jnp.float32([rate, 1.0]))
        context = Context(
            jnp.ones(2), jnp.array([10.0, 300.0]), jnp.array(60.0), jnp.array([95.0, 300.0])
        )
        action, report = filter_action(bad, context, jnp.array([95.0, 300.0]))
        assert action[0] == 10.0
        assert int(report.flags) & Flag.BAD_CONSTRAINT


def test_a_subnormal_request_counts_as_zero_and_says_so(spec):
    context = Context(jnp.ones(2), jnp.array([0.0, 300.0]), jnp.array(60.0), jnp.ones(2))
    action, report = filter_action(
        action_constraints(spec), context, jnp.asarray(np.float32([1e-40, 300.0]))
    )
    assert np.asarray(action).tolist() == [0.0, 300.0]
    assert int(report.flags) & Flag.REQUEST_SUBNORMAL


def test_subnormal_limits_are_refused_by_name():
    one = np.float32([1])
    with pytest.raises(ValueError, match=r"'u'.*low is .*smallest normal number.*write 0"):
        ActionConstraints(1e-40 * one, one, one, one, -one, one, ("u",), ("1",))
