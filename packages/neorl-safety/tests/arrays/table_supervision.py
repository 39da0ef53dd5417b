"""What decides over an episode which controller acts, beside the same rules as loops in Python."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.testing import Edge, Row, flags, integers, mapped, reals, rows
from neorl_safety.constraints import Tier, excess, penalty, requirement
from neorl_safety.guards import (
    SupervisorCarry,
    decayed_offset,
    initial_supervisor,
    supervise,
    supervision,
)
from neorl_safety.monitoring import (
    Robustness,
    above,
    always,
    below,
    conjunction,
    disjunction,
    episode_alarms,
    episode_scores,
    eventually,
    mahalanobis_monitor,
    negation,
    robustness,
    seconds_held,
    until,
)

NO_GRADIENT_AT_A_KINK = {"slope": "the slope jumps, and a drawn number may lie beside the jump"}

# The supervisor, over an episode of faults and alarms.


def in_charge(fault, alarm, *, trip_after, reset_after, dwell, latch_after):
    settings = supervision(
        trip_after=trip_after,
        reset_after=reset_after,
        dwell=dwell,
        latch_after=latch_after,
        settle=0,
    )
    carry, tripped = initial_supervisor(), []
    for step in range(fault.shape[0]):
        carry = supervise(settings, carry, fault[step], alarm[step])
        tripped.append(carry.tripped)
    return jnp.stack(tripped), carry


def by_the_rules(fault, alarm, *, trip_after, reset_after, dwell, latch_after):
    fallback, latched, alarms, clean, since, trips, acted = False, False, 0, 0, 0, 0, []
    for fails, rings in zip(fault, alarm, strict=True):
        alarms = alarms + 1 if rings else 0
        clean = 0 if fails or rings else clean + 1
        before, since = fallback, since + 1
        if fails or alarms >= trip_after:
            fallback = True
        elif clean >= reset_after and since >= dwell and not latched:
            fallback = False
        if fallback != before:
            since, trips = 0, trips + fallback
        latched |= bool(latch_after) and trips >= latch_after and fallback
        acted.append(fallback)
    return np.array(acted), SupervisorCarry(fallback, alarms, clean, since, trips, latched, False)


def a_fault_is_answered_at_once(fault, alarm, **settings):
    tripped, _ = mapped(in_charge, fault, alarm, **settings)
    assert np.all(np.asarray(tripped)[fault])


# The offset of a controller that takes over.


def shrinking(proposal, last, offset, acted, span, *, dt, settle):
    fresh = offset if acted else last - proposal
    rest = fresh * (math.exp(-dt / settle) if settle else 0)
    return np.where(np.abs(rest) > 1e-3 * span, rest, 0)


def with_span(proposal, last, offset, acted, span, *, dt, settle):
    return decayed_offset(proposal, last, offset, acted, span=span, dt=dt, settle=settle)


def an_unknown_last_action_has_no_offset(proposal, last, offset, acted, span, **times):
    nothing = np.full_like(last, np.nan)
    before = np.zeros_like(acted)
    unknown = mapped(with_span, proposal, nothing, offset, before, span, **times)
    np.testing.assert_array_equal(unknown, 0)


# How long an actuator has stood still.


def seconds_since(applied, dt):
    held = np.full(applied.shape, np.inf)
    for step in range(1, len(applied)):
        still = applied[step - 1] == (applied[step - 2] if step > 1 else applied[step - 1])
        held[step] = np.where(still, held[step - 1], 0) + dt
    return held


def a_move_each_step_is_held_for_one(applied, dt):
    moving = np.broadcast_to(
        np.arange(applied.shape[1], dtype="float32")[:, None], applied.shape[1:]
    )
    held = np.asarray(mapped(seconds_held, np.broadcast_to(moving, applied.shape), dt))
    np.testing.assert_array_equal(
        held[:, 2:], np.broadcast_to(dt[:, None, None], held[:, 2:].shape)
    )


# Requirements of a user.


def over(limit, obs, action):
    return obs[0] + action[0] - limit


def slow(least, obs, action):
    return least - obs[1]


REQUIREMENTS = (
    requirement("dose", over, np.float32(5.0), unit="kg", tier=Tier.SOFT, weight=2.0),
    requirement("speed", slow, np.float32(1.0), unit="m/s", tier=Tier.SOFT, weight=0.5),
)


def by_how_much(obs, action):
    return excess(REQUIREMENTS, obs, action)


def penalised(obs, action):
    return penalty(REQUIREMENTS, obs, action)


def two_differences(obs, action):
    return np.array([obs[0] + action[0] - 5, 1 - obs[1]])


def weighted_excess(obs, action):
    return np.maximum(two_differences(obs, action), 0) @ [2.0, 0.5]


def what_is_not_a_number_is_violated(obs, action):
    lost = np.asarray(mapped(by_how_much, np.full_like(obs, np.nan), action))
    np.testing.assert_array_equal(lost, np.inf)


def nothing_to_pay_within_limits(obs, action):
    inside = np.asarray(mapped(by_how_much, obs, action)).max(axis=-1) <= 0
    np.testing.assert_array_equal(np.asarray(mapped(penalised, obs, action))[inside], 0)


# Temporal logic over an episode of two channels.

FORMULAS = {
    "always": always(below("T", 1.0), 0, 2),
    "response": disjunction(negation(above("T", 0.0)), eventually(above("p", 0.0), 0, 2)),
    "until": conjunction(until(below("T", 2.0), above("p", 1.0), 0, 3), above("p", -9.0)),
}


def margin(obs, *, formula):
    return robustness(FORMULAS[formula], obs, ("T", "p"))


def by_definition(obs, *, formula):
    T, p, n = obs[:, 0], obs[:, 1], len(obs)
    value, horizon = np.full(n, np.nan), {"always": 2, "response": 2, "until": 3}[formula]
    for now in range(n - horizon):
        if formula == "always":
            value[now] = (1 - T[now : now + 3]).min()
        elif formula == "response":
            value[now] = max(-T[now], p[now : now + 3].max())
        else:
            ends = (min([p[k] - 1, *(2 - T[now:k])]) for k in range(now, now + 4))
            value[now] = min(max(ends), p[now] + 9)
    return Robustness(value, np.arange(n) + horizon < n)


def a_lost_reading_never_helps(obs, *, formula):
    whole, _ = mapped(margin, obs, formula=formula)
    lost = np.where(np.arange(obs.shape[1])[:, None] == 0, np.float32(np.nan), obs)
    value, _ = mapped(margin, lost.astype(obs.dtype), formula=formula)
    known = ~np.isnan(np.asarray(whole))
    assert np.all(np.asarray(value)[known] <= np.asarray(whole)[known])


# Scores of a monitor over episodes.

LOG = np.random.default_rng(2).normal(size=(500, 2)) * [1.0, 3.0] + [0.0, 5.0]
MONITOR = mahalanobis_monitor(LOG)
MONITOR = eqx.tree_at(lambda monitor: monitor.threshold, MONITOR, jnp.float32(4.0))


def distance(obs):
    centred = obs - LOG.mean(axis=0)
    inverse = np.linalg.inv(np.cov(LOG, rowvar=False, bias=True))
    return np.einsum("...i,ij,...j", centred, inverse, centred)


def largest_score(obs, mask):
    return episode_scores(MONITOR, obs, jnp.zeros((*obs.shape[:2], 1)), mask)


def any_alarm(obs, mask):
    return episode_alarms(MONITOR, obs, jnp.zeros((*obs.shape[:2], 1)), mask)


def largest_distance(obs, mask):
    return np.where(mask, distance(obs), -np.inf).max(axis=1)


def far_away(obs, mask):
    return largest_distance(obs, mask) > 4


def padding_counts_nothing(obs, mask):
    nothing = np.zeros_like(mask)
    np.testing.assert_array_equal(mapped(largest_score, obs, nothing), -np.inf)
    assert not np.any(mapped(any_alarm, obs, nothing))


def an_alarm_is_a_score_above_the_threshold(obs, mask):
    above_it = np.asarray(mapped(largest_score, obs, mask)) > 4
    np.testing.assert_array_equal(mapped(any_alarm, obs, mask), above_it)


PERIODS = st.fixed_dictionaries({"dt": reals(0.125, 8), "settle": reals(0.5, 50)})
COUNTS = {
    "trip_after": st.just(2),
    "reset_after": st.just(2),
    "dwell": st.sampled_from([0, 3]),
    "latch_after": st.sampled_from([0, 2]),
}
EPISODES = st.tuples(rows(2, 3, 2, elements=reals(-9, 9)), flags(2, 3))

ROWS = [
    Row(in_charge, st.tuples(flags(9), flags(9)), by_the_rules,
        laws=[a_fault_is_answered_at_once], options=st.fixed_dictionaries(COUNTS),
        name="supervise", differentiable=False),
    Row(with_span, st.tuples(rows(3), rows(3), rows(3), flags(), rows(3, elements=reals(0.5, 50))),
        shrinking, laws=[an_unknown_last_action_has_no_offset], options=PERIODS,
        name="decayed_offset", exempt=NO_GRADIENT_AT_A_KINK,
        edges=[Edge((np.zeros(0), np.zeros(0), np.zeros(0), np.True_, np.zeros(0)),
                    {"dt": 1.0, "settle": 0.0})]),
    Row(seconds_held,
        st.tuples(integers(7, 2, low=0, high=1).map(np.float32), rows(elements=reals(0.5, 9))),
        seconds_since, laws=[a_move_each_step_is_held_for_one], differentiable=False,
        exempt={"finite": "before the first move it is infinite"}),
    Row(by_how_much, st.tuples(rows(2), rows(1)), two_differences,
        laws=[what_is_not_a_number_is_violated], name="excess"),
    Row(penalised, st.tuples(rows(2), rows(1)), weighted_excess,
        laws=[nothing_to_pay_within_limits], name="penalty", exempt=NO_GRADIENT_AT_A_KINK),
    Row(margin, st.tuples(rows(7, 2)), by_definition, laws=[a_lost_reading_never_helps],
        options=st.fixed_dictionaries({"formula": st.sampled_from(sorted(FORMULAS))}),
        name="robustness", differentiable=False,
        exempt={"finite": "NaN where the episode ends before it is decided"}),
    Row(largest_score, EPISODES, largest_distance, laws=[padding_counts_nothing],
        name="episode_scores", differentiable=False,
        exempt={"finite": "minus infinity for an episode without steps"}),
    Row(any_alarm, EPISODES, far_away, laws=[an_alarm_is_a_score_above_the_threshold],
        name="episode_alarms", differentiable=False),
]  # fmt: skip
