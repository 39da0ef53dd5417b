"""Rows under hostile input, all kinds together, and the nearest point against another solver."""

import clarabel
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

from neorl_core import Channel, Spec
from neorl_safety.constraints import (
    Barrier,
    Constraints,
    Deadband,
    Interlock,
    Linear,
    Rest,
    declared_constraints,
)
from neorl_safety.filters import (
    Admissible,
    Context,
    Flag,
    certify,
    filter_action,
    nearest,
)

COUNT = 10_000
SPECIAL = np.float32([np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-40, 1.2e-38, 0, -0.0, 1, 1e6])


def hostile(rng, *shape, share=0.1, scale=1.0):
    """Normal draws with special values in two cases of three."""
    calm = rng.normal(0, scale, (COUNT, *shape)).astype(np.float32)
    wild = rng.random(calm.shape) < share
    wild &= (np.arange(COUNT) % 3 > 0).reshape(-1, *[1] * len(shape))
    return jnp.asarray(np.where(wild, rng.choice(SPECIAL, calm.shape), calm))


def further(rng):
    """Constraints of every kind along the first axis; three observations, two actions."""
    index = lambda high: jnp.asarray(rng.integers(0, high, (COUNT, 2)), jnp.int32)  # noqa: E731
    ends = np.sort(rng.normal(0, 3, (2, COUNT, 2)), axis=0).astype(np.float32)
    wild = lambda x: jnp.where(jnp.isnan(h := hostile(rng, 2)), h, jnp.asarray(x))  # noqa: E731
    trips = hostile(rng, 2) - 1, hostile(rng, 2) + 1
    lock = Interlock(index(3), *trips, index(2), wild(ends[0]), wild(ends[1]))
    rows, by_obs = hostile(rng, 2, 2, share=0.05), hostile(rng, 2, 3, share=0.02)
    linear = Linear(rows, hostile(rng, 2) + 1, by_obs)
    decay = jnp.where(jnp.isnan(h := hostile(rng, 1)), h, jnp.float32(0.4))
    barrier = Barrier(
        hostile(rng, 1, 3, share=0.02), hostile(rng, 1), hostile(rng, 1, 3, share=0.02),
        hostile(rng, 1, 2, share=0.02), hostile(rng, 1) + 1, decay, jnp.abs(hostile(rng, 1)),
    )  # fmt: skip
    return {
        "interlock": lock,
        "linear": linear,
        "barrier": barrier,
        "deadband": Deadband(jnp.abs(hostile(rng, 2, scale=0.1))),
        "rest": Rest(jnp.abs(hostile(rng, 2))),
    }


FILTER = jax.vmap(lambda action, more, now, u: filter_action(Constraints(action, more), now, u))


@pytest.fixture(scope="module")
def filtered(hostile_cases):
    """Every kind alone, and all together: what was asked and what came out, on the host."""
    action, context, request = hostile_cases
    rng = np.random.default_rng(7)
    every = further(rng)
    context = context._replace(held=jnp.abs(hostile(rng, 2)))
    subsets = {name: {name: leaf} for name, leaf in every.items()} | {"all": every}
    run = jax.jit(FILTER)
    answers = {}
    for name, more in subsets.items():
        arguments = action, more, context, request
        answers[name] = jax.tree.map(np.asarray, (*arguments, run(*arguments)))
    return answers


def rows_of(more, obs):
    """Rows and right sides in float64, as the kinds define them, and where they are usable."""
    rows, bounds = [], []
    with np.errstate(all="ignore"):
        if "linear" in more:
            part = np.where(more["linear"].by_obs == 0, 0, more["linear"].by_obs * obs[:, None])
            rows.append(more["linear"].rows.astype(np.float64))
            bounds.append(more["linear"].at_most + part.astype(np.float64).sum(-1))
        if "barrier" in more:
            b = jax.tree.map(lambda leaf: leaf.astype(np.float64), more["barrier"])
            by_obs = b.next_by_obs - (1 - b.decay)[..., None] * b.now
            h = np.where(by_obs == 0, 0, by_obs * obs[:, None]).sum(-1)
            rows.append(-b.next_by_action)
            bounds.append(h + b.next_offset - (1 - b.decay) * b.offset - b.margin)
    return np.concatenate(rows, 1), np.concatenate(bounds, 1)


def beside_the_box(lock, obs, limits):
    """Where sound tripped interlocks of a channel together lie outside its box, in plain Python."""
    result = np.zeros(limits.low.shape, bool)
    tiny = np.finfo(np.float32).tiny
    for case, act in np.ndindex(result.shape):
        low, high = limits.actuator_low[case, act], limits.actuator_high[case, act]
        for k in np.flatnonzero(lock.act[case] == act):
            ends, trips = (
                (lock.low[case, k], lock.high[case, k]),
                (lock.below[case, k], lock.above[case, k]),
            )
            if not np.isfinite(ends).all() or ends[0] > ends[1] or np.isnan(trips).any():
                continue
            if any(0 < abs(end) < tiny for end in ends):
                continue
            reading = obs[case, lock.measured[case, k]]
            if not trips[0] <= reading <= trips[1]:
                low, high = max(low, ends[0]), min(high, ends[1])
        result[case, act] = low <= high and (
            low > limits.high[case, act] or high < limits.low[case, act]
        )
    return result


@pytest.mark.parametrize("kind", ["interlock", "linear", "barrier", "deadband", "rest", "all"])
def test_ten_thousand_hostile_cases_of_each_kind_and_of_all(filtered, kind):
    """Row N19: whatever is asked for, the filter's action breaks no hard limit."""
    limits, more, context, request, (action, report) = filtered[kind]
    assert action.shape == (COUNT, 2)
    assert np.isfinite(action).all()
    assert np.isfinite(report.intervention).all()
    tiny = np.finfo(np.float32).tiny
    ends = np.stack([limits.low, limits.high, limits.actuator_low, limits.actuator_high])
    well = np.isfinite(ends).all((0, 2)) & ((ends == 0) | (np.abs(ends) >= tiny)).all((0, 2))
    well &= (limits.actuator_low <= limits.low).all(1) & (limits.low <= limits.high).all(1)
    well &= (limits.high <= limits.actuator_high).all(1)
    inside = (action >= limits.actuator_low) & (action <= limits.actuator_high)
    assert inside[well].all()
    began = context.previous
    began = (~np.isfinite(began) | ((began >= limits.low) & (began <= limits.high))).all(1)
    boxed = (action >= limits.low) & (action <= limits.high)
    if "interlock" in more:
        boxed |= beside_the_box(more["interlock"], context.obs, limits)
    assert boxed[well & began].all()
    assert (well & began).sum() > 300
    changed = (action != request).any(1) & np.isfinite(request).all(1)
    reasons = Flag.FALLBACK_USED | Flag.BOX_ACTIVE | Flag.RATE_ACTIVE | Flag.INTERVAL_ACTIVE
    reasons |= Flag.ROWS_ACTIVE | Flag.WEAR_ACTIVE | Flag.REQUEST_SUBNORMAL
    assert ((report.flags & reasons) != 0)[changed].all()
    if kind not in ("linear", "barrier", "all"):
        return
    rows, bounds = rows_of(more, context.obs)
    sound = np.isfinite(context.obs).all(1) & ((report.flags & Flag.BAD_CONSTRAINT) == 0)
    held = sound & ((report.flags & Flag.ROWS_INFEASIBLE) == 0)
    with np.errstate(all="ignore"):
        excess = (rows * action[:, None]).sum(-1) - bounds
        size = (np.abs(rows) * np.abs(action[:, None])).sum(-1) + np.abs(bounds)
        # The right side was summed in float32 from terms that may cancel.
        size += 10 * np.abs(context.obs).max(1, initial=1)[:, None]
    assert (excess <= 1e-6 * size)[held].all()
    assert held.sum() > 500
    assert ((report.flags & Flag.FALLBACK_USED) != 0)[sound & ~held].all()


def test_one_case_alone_agrees_with_the_batch(filtered):
    limits, more, context, request, expected = filtered["all"]
    single = jax.jit(lambda action, more, now, u: filter_action(Constraints(action, more), now, u))
    for i in range(64):
        one = jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i]), (limits, more, context, request))
        action, report = single(*one)
        np.testing.assert_allclose(action, expected[0][i], rtol=1e-5, atol=1e-5)
        assert int(report.flags) == int(expected[1].flags[i])


@pytest.mark.nightly
@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_replay_on_another_batch_shape_is_the_same_decision(filtered, size):
    """Flags are equal, actions to rounding: sums of rows may be taken in another order."""
    count = 2100 // size
    *arguments, expected = filtered["all"]
    run = jax.jit(FILTER)
    for j in range(count):
        part = slice(j * size, (j + 1) * size)
        action, report = run(
            *jax.tree.map(lambda leaf, part=part: jnp.asarray(leaf[part]), arguments)
        )
        np.testing.assert_array_equal(np.asarray(report.flags), expected[1].flags[part])
        np.testing.assert_allclose(action, expected[0][part], rtol=1e-4, atol=1e-6)


def test_certify_answers_any_proposal_with_a_point_of_the_set_or_the_backup():
    """Proposals, anchors, backups and rows may be anything; the ends are finite."""
    rng = np.random.default_rng(1)
    ends = np.sort(rng.normal(0, 2, (2, COUNT, 3)), axis=0).astype(np.float32)
    rows, bounds = hostile(rng, 4, 3, share=0.02), hostile(rng, 4, share=0.02)
    arguments = (Admissible(*map(jnp.asarray, ends), rows, bounds), hostile(rng, 3, share=0.4))
    anchors = (hostile(rng, 3, share=0.3), hostile(rng, 3, share=0.3))
    run = jax.jit(jax.vmap(certify))
    backup = hostile(rng, 3, share=0.5)
    action, good = map(np.asarray, run(*arguments, anchors, backup))
    assert np.isfinite(action).all()
    assert ((action >= ends[0]) & (action <= ends[1])).all()
    with np.errstate(all="ignore"):
        excess = (np.float64(rows) * action[:, None]).sum(-1) - np.float64(bounds)
    assert (excess <= 0)[good].all()
    assert 500 < good.sum() < COUNT - 500
    backup = np.where(np.isnan(backup), ends[0], np.clip(backup, *ends))
    np.testing.assert_array_equal(action[~good], backup[~good])


def solved(low, high, rows, bounds, target):
    """The nearest point by Clarabel, an interior-point solver in float64."""
    n = len(target)
    matrix = sparse.csc_matrix(np.concatenate([rows, np.eye(n), -np.eye(n)]))
    right = np.concatenate([bounds, high, -low])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(len(right))]
    quadratic = sparse.csc_matrix(np.eye(n))
    solution = clarabel.DefaultSolver(quadratic, -target, matrix, right, cones, settings).solve()
    status = str(solution.status)
    return np.asarray(solution.x), status


def drawn_sets(rng, count, n_action, n_rows, where):
    """Boxes of very different sizes, rows through them that leave an inner point, targets."""
    span = 10.0 ** rng.uniform(-1, 3, (count, n_action))
    low = rng.uniform(-2, 1, (count, n_action)) * span
    inner = low + rng.uniform(0, 1, (count, n_action)) * span
    rows = rng.normal(size=(count, n_rows, n_action)) / span[:, None]
    rows *= 10.0 ** rng.uniform(-2, 2, (count, n_rows, 1))
    rows[::3, -1] = -rows[::3, 0]  # a slab: the narrower, the harder
    length = np.linalg.norm(rows * span[:, None], axis=-1)
    room = 10.0 ** rng.uniform(-2.5, 0, (count, n_rows))
    bounds = (rows @ inner[..., None])[..., 0] + room * length
    target = low + rng.uniform(0, 1, (count, n_action)) * span
    at_an_end = rng.random(target.shape) < 0.6
    end = np.where(rng.random(target.shape) < 0.5, low, low + span)
    target = np.where(at_an_end, end, target) if where == "at an end" else target
    target = low + rng.uniform(-5, 6, target.shape) * span if where == "outside" else target
    columns = low, low + span, rows, bounds, target, span
    return [np.asarray(column, np.float32) for column in columns]


@jax.jit
@jax.vmap
def moved(low, high, rows, bounds, target, span):
    admissible = Admissible(low, high, rows, bounds)
    return certify(admissible, nearest(admissible, target, span), (), low)


@pytest.mark.parametrize("where", ["inside", "at an end", "outside"])
@pytest.mark.parametrize(
    ("n_action", "n_rows"), [(1, 2), (2, 3), (3, 3), (4, 3), (5, 6), (3, 10), (8, 10), (8, 20)]
)
def test_the_nearest_point_is_that_of_another_solver_and_no_set_is_called_empty(
    n_action, n_rows, where
):
    rng = np.random.default_rng([n_action, n_rows, len(where)])
    count = 60
    low, high, rows, bounds, target, span = drawn_sets(rng, count, n_action, n_rows, where)
    action, passed = map(np.asarray, moved(low, high, rows, bounds, target, span))
    assert passed.all()
    bound_by_rows = 0
    for i in range(count):
        a, b, g, h, t, s = (np.float64(x[i]) for x in (low, high, rows, bounds, target, span))
        expected, status = solved(0 * a, (b - a) / s, g * s, h - g @ a, (t - a) / s)
        assert "Solved" in status
        bound_by_rows += np.abs(expected - np.clip((t - a) / s, 0, 1)).max() > 1e-3
        # In a slab of a thousandth of the span, a rounding of a row moves the nearest point so far.
        assert np.abs((action[i] - a) / s - expected).max() < 1e-3
    assert bound_by_rows > 10


def test_a_pump_is_not_driven_to_its_end_by_a_request_beyond_the_other_ones_end():
    spec = Spec(
        obs=(Channel("level", "m", 0.0, 2.0),),
        action=(Channel("a", "%", 0.0, 100.0), Channel("b", "%", 0.0, 100.0)),
        cost=(),
        dt=60.0,
        horizon=10,
    )
    per = {"value": -0.1, "per": "%"}, {"value": -0.2, "per": "%"}
    row = {"kind": "linear", "sum": dict(zip("ab", per, strict=True)), "at_most": -20.0, "plus": {}}
    limits = declared_constraints(spec, [row])
    now = Context(jnp.ones(1), jnp.array([50.0, 80.0]), jnp.float32(60.0), jnp.array([50.0, 80.0]))
    action, report = jax.jit(filter_action)(limits, now, jnp.array([120.0, 5.0]))
    np.testing.assert_allclose(action, [100.0, 50.0], atol=0.01)
    assert not int(report.flags) & Flag.FALLBACK_USED


def blind(admissible, target, scale):
    """A candidate that looks at no row."""
    return jnp.clip(target, admissible.low, admissible.high)


def test_a_candidate_that_looks_at_no_row_is_certified_like_any_other(filtered):
    limits, more, context, request, (expected, report) = filtered["linear"]
    arguments = jax.tree.map(lambda leaf: leaf[::10], (limits, more, context, request))
    run = jax.jit(
        jax.vmap(
            lambda action, more, now, u: filter_action(
                Constraints(action, more), now, u, candidate=blind
            )
        )
    )
    action, other = jax.tree.map(np.asarray, run(*arguments))
    assert np.isfinite(action).all()
    # Whether rows can hold is the last step's to say, which had the same anchors.
    sure = (report.flags[::10] & (Flag.BAD_CONSTRAINT | Flag.ROWS_INFEASIBLE)) == 0
    held = sure & ((other.flags & Flag.ROWS_INFEASIBLE) == 0)
    assert held.sum() > 0.9 * sure.sum()
    rows, bounds = rows_of(arguments[1], arguments[2].obs)
    with np.errstate(all="ignore"):
        excess = (rows * action[:, None]).sum(-1) - bounds
        size = (np.abs(rows) * np.abs(action[:, None])).sum(-1) + np.abs(bounds)
        size += 10 * np.abs(arguments[2].obs).max(1, initial=1)[:, None]
    assert (excess <= 1e-6 * size)[held].all()
    untouched = held & ((other.flags & Flag.ROWS_ACTIVE) == 0)
    np.testing.assert_array_equal(action[untouched], expected[::10][untouched])
