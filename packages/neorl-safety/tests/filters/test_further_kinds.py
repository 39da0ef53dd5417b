"""The filter meets the intervals of further kinds, and stays total whatever they answer."""

import types
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from neorl_safety.constraints import (
    Constraints,
    Interval,
    Rows,
    action_constraints,
    register_kind,
)
from neorl_safety.filters import Context, Flag, Limit, filter_action, flag_names
from neorl_safety.guards import guard


class Told(NamedTuple):
    """A constraint that is its own interval, to meet every answer a kind could give."""

    low: Array
    high: Array


TOLD = types.SimpleNamespace(
    to_records=None,
    from_records=None,
    describe=None,
    lower=lambda told, situation: Interval(told.low, told.high, jnp.zeros(2, bool)),
)


@pytest.fixture
def told(own_kinds):
    for member in ("to_records", "from_records", "describe"):
        setattr(TOLD, member, lambda *_: [])
    register_kind("told", TOLD)


def now(previous=(50.0, 300.0), fallback=(40.0, 300.0)) -> Context:
    return Context(jnp.ones(2), jnp.array(previous), jnp.array(60.0), jnp.array(fallback))


def filtered(spec, low, high, request, context=None, rates=None):
    further = {"told": Told(jnp.array(low), jnp.array(high))}
    constraints = Constraints(action_constraints(spec, rates), further)
    action, report = filter_action(constraints, context or now(), jnp.array(request))
    return action.tolist(), set(flag_names(int(report.flags))), report.limits.tolist()


@pytest.mark.usefixtures("told")
def test_a_request_is_clipped_into_the_meet_of_all_kinds(spec):
    inf = np.inf
    action, flags, limits = filtered(spec, [20.0, -inf], [30.0, inf], [90.0, 310.0])
    assert action == [30.0, 310.0]
    assert flags == {"interval_active"}
    assert limits == [Limit.INTERVAL_HIGH, 0]
    action, flags, limits = filtered(spec, [-inf, 305.0], [inf, inf], [-5.0, 290.0])
    assert action == [0.0, 305.0]
    assert flags == {"box_active", "interval_active"}
    assert limits == [Limit.LOW, Limit.INTERVAL_LOW]
    # What is admitted passes to the bit, and says nothing.
    action, flags, limits = filtered(spec, [-inf, 290.0], [60.0, inf], [55.5, 301.25])
    assert (action, flags, limits) == ([55.5, 301.25], set(), [0, 0])


@pytest.mark.usefixtures("told")
def test_the_rate_outranks_a_further_kind(spec):
    """From a previous action outside the interval the action returns at the allowed rate."""
    action, flags, _ = filtered(spec, [0.0, 280.0], [10.0, 320.0], [5.0, 300.0], rates=[0.25, None])
    assert action == [35.0, 300.0]
    assert flags == {"rate_active"}


@pytest.mark.usefixtures("told")
def test_an_empty_meet_leaves_the_kind_out_and_says_so(spec):
    action, flags, limits = filtered(spec, [200.0, 290.0], [300.0, 295.0], [70.0, 310.0])
    assert action == [70.0, 295.0]
    assert flags == {"interval_active", "interval_empty"}
    assert limits == [0, Limit.INTERVAL_HIGH]


@pytest.mark.usefixtures("told")
def test_a_malformed_answer_hands_over_to_the_fallback(spec):
    action, flags, _ = filtered(spec, [np.nan, 280.0], [60.0, 320.0], [70.0, 310.0])
    assert action == [40.0, 300.0]
    assert flags == {"bad_constraint", "fallback_used"}


@pytest.mark.usefixtures("told")
def test_an_answer_of_another_form_is_refused_while_tracing(spec, monkeypatch):
    """One number would be broadcast, and so limit channels that the kind does not mean."""
    end, free = jnp.zeros(2), jnp.zeros(2, bool)
    for answer, words in (
        (Interval(end[0], end[1], free), r"got \(\(\), \(\), \(2,\)\) and bool"),
        (Interval(end, end, end), r"bad as booleans; got .* and float32"),
        (Rows(end, end[:1], free[:1]), r"shapes \(\(1, 2\), \(1,\), \(1,\)\)"),
        ((end, end), "the kind 'told' must return an Interval or Rows, got a tuple"),
        (None, "got a NoneType"),
    ):
        monkeypatch.setattr(TOLD, "lower", lambda *_, answer=answer: answer)
        with pytest.raises((TypeError, ValueError), match=words):
            filtered(spec, [0.0, 0.0], [1.0, 1.0], [5.0, 5.0])


@pytest.mark.usefixtures("told")
def test_the_filter_is_total_whatever_a_kind_answers(spec, hostile_cases):
    """All that is guaranteed without further kinds holds with them."""
    constraints, context, request = hostile_cases
    count = len(request)
    rng = np.random.default_rng(4)
    special = np.float32([np.nan, np.inf, -np.inf, 0, -0.0, 3e38, -3e38, 1e-40, 0.5, -0.5])
    answers = rng.choice(special, (2, count, 2))
    answers[:, :500] = np.float32([-np.inf, np.inf])[:, None, None]  # kinds that admit everything
    ends = jnp.asarray(answers)
    every = jax.jit(
        jax.vmap(lambda c, low, high, now, u: filter_action(
            Constraints(c, {"told": Told(low, high)}), now, u
        ))
    )  # fmt: skip
    action, report = every(constraints, ends[0], ends[1], context, request)
    plain, _ = jax.jit(jax.vmap(filter_action))(constraints, context, request)
    action, plain, low, high = (np.asarray(x) for x in (action, plain, *ends))
    assert np.isfinite(action).all()
    assert np.isfinite(np.asarray(report.intervention)).all()
    c = constraints
    well_formed = np.asarray(
        (c.actuator_low <= c.low) & (c.low <= c.high) & (c.high <= c.actuator_high)
        & jnp.isfinite(c.actuator_low) & jnp.isfinite(c.actuator_high)
        & (c.rate_up >= 0) & (c.rate_down >= 0)
    ).all(axis=1)  # fmt: skip
    tiny = np.finfo(np.float32).tiny
    limits = np.stack([c.low, c.high, c.actuator_low, c.actuator_high])
    normal = well_formed & (np.abs(limits) >= tiny).all(axis=(0, 2))
    assert normal.sum() > 1000
    assert (action[normal] >= np.asarray(c.actuator_low)[normal]).all()
    assert (action[normal] <= np.asarray(c.actuator_high)[normal]).all()
    free = (low == -np.inf).all(axis=1) & (high == np.inf).all(axis=1)
    assert free.sum() >= 500
    np.testing.assert_array_equal(action[free], plain[free])
    malformed = (np.isnan(low) | np.isnan(high)).any(axis=1)
    flags = np.asarray(report.flags)
    assert (flags[malformed] & Flag.BAD_CONSTRAINT).all()
    assert (flags[malformed] & Flag.FALLBACK_USED).all()


def test_a_foreign_kind_is_enforced_by_a_guard_under_jit(spec, ceiling, pid):
    register_kind("ceiling", ceiling.kind)
    constraint = ceiling.constraint(obs=1, above=350.0, highest=[10.0, 320.0])
    constraints = Constraints(action_constraints(spec), {"ceiling": constraint})
    policy = guard(pid, constraints, pid, spec)
    step = jax.jit(lambda carry, obs: policy(carry, obs))
    carry = policy.initial_carry()
    carry, cold = step(carry, jnp.array([0.0, 340.0]))
    assert float(cold[0]) > 10
    assert not int(carry.report.flags) & Flag.INTERVAL_ACTIVE
    carry, hot = step(policy.sent(carry, cold), jnp.array([0.0, 351.0]))
    assert float(hot[0]) == 10.0
    assert int(carry.report.flags) & Flag.INTERVAL_ACTIVE
    assert int(carry.report.limits[0]) & Limit.INTERVAL_HIGH
