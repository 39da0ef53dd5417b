"""Rows under hostile input, all kinds together, and the nearest point against another solver."""

import clarabel
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

from neorl_safety.constraints import (
    Barrier,
    Constraints,
    Deadband,
    Dwell,
    Interlock,
    Linear,
)
from neorl_safety.filters import (
    Admissible,
    Flag,
    certify,
    filter_action,
    nearest_by_dual_ascent,
    nearest_by_enumeration,
)
from neorl_safety.interior_point import nearest_by_interior_point

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
        "dwell": Dwell(jnp.abs(hostile(rng, 2))),
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
        asked = action, more, context, request
        answers[name] = jax.tree.map(np.asarray, (*asked, run(*asked)))
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


@pytest.mark.parametrize("kind", ["interlock", "linear", "barrier", "deadband", "dwell", "all"])
def test_ten_thousand_hostile_cases_of_each_kind_and_of_all(filtered, kind):
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
    assert boxed[well & began].all()
    assert (well & began).sum() > 300
    changed = (action != request).any(1) & np.isfinite(request).all(1)
    reasons = Flag.FALLBACK_USED | Flag.BOX_ACTIVE | Flag.RATE_ACTIVE | Flag.FURTHER_ACTIVE
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


@pytest.mark.parametrize(
    ("search", "n_action", "n_rows", "share"),
    [
        (nearest_by_enumeration, 2, 3, 0.99),
        (nearest_by_dual_ascent, 2, 3, 0.9),
        (nearest_by_interior_point, 6, 20, 1.0),
    ],
)
def test_the_nearest_point_agrees_with_another_solver(search, n_action, n_rows, share):
    rng = np.random.default_rng(3)
    count = 300
    rows = rng.normal(size=(count, n_rows, n_action)).astype(np.float32)
    inner = rng.uniform(-0.8, 0.8, (count, n_action))
    bounds = (rows @ inner[..., None])[..., 0] + rng.exponential(0.3, (count, n_rows))
    bounds = bounds.astype(np.float32)
    target = rng.uniform(-1, 1, (count, n_action)).astype(np.float32)
    one = np.ones((count, n_action), np.float32)
    found = jax.jit(jax.vmap(search))(Admissible(-one, one, rows, bounds), target, one)
    apart, active = [], 0
    for i in range(count):
        expected, status = solved(-one[i], one[i], rows[i], bounds[i], target[i])
        assert status == "Solved"
        active += np.linalg.norm(expected - target[i]) > 1e-3
        apart.append(np.abs(np.asarray(found[i]) - expected).max())
    assert active > 60
    assert np.mean(np.array(apart) < 1e-3) >= share


def test_what_a_solver_makes_of_hostile_rows_is_certified_like_any_proposal(filtered):
    limits, more, context, request, (expected, report) = filtered["linear"]
    arguments = jax.tree.map(lambda leaf: leaf[::10], (limits, more, context, request))
    run = jax.jit(
        jax.vmap(
            lambda action, more, now, u: filter_action(
                Constraints(action, more), now, u, candidate=nearest_by_interior_point
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
