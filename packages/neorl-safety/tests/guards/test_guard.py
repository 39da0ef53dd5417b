"""A guarded policy: always finite, never a bump, itself a policy."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import InputError, Policy
from neorl_core.control import PID, ConstantPolicy, UniformPolicy
from neorl_core.testing import no_recompile
from neorl_safety.constraints import action_constraints, declared_constraints
from neorl_safety.filters import Flag, flag_names
from neorl_safety.guards import GuardedPolicy, guard, supervision

RATES = (0.25, 0.05)
LOW, HIGH = np.array([0.0, 280.0]), np.array([100.0, 320.0])
STEP = np.array(RATES) * 60.0


class Network(eqx.Module):
    """A recurrent stand-in for a learned policy: its carry is a filtered observation."""

    weights: jax.Array
    offset: jax.Array

    def initial_carry(self):
        return jnp.zeros((2,))

    def __call__(self, carry, obs, key=None):
        carry = 0.9 * carry + 0.1 * obs
        return carry, self.weights @ carry + self.offset

    def sent(self, carry, action):
        return carry


@pytest.fixture
def network() -> Network:
    return Network(jnp.array([[5.0, 0.01], [1.0, 0.02]]), jnp.array([40.0, 295.0]))


@pytest.fixture
def guarded(spec, network, pid) -> GuardedPolicy:
    return guard(network, action_constraints(spec, RATES), pid, spec)


def advance(policy, carry, row):
    """One step of the protocol: act, then report what was really sent."""
    obs, override = row
    carry, action = policy(carry, obs, None)
    applied = jnp.where(jnp.isnan(override), action, override)
    carry = policy.sent(carry, applied)
    return carry, (action, applied, carry.report)


def roll(policy, observations, overrides):
    def step(carry, row):
        return advance(policy, carry, row)

    return jax.lax.scan(step, policy.initial_carry(), (observations, overrides))


ROLL = jax.jit(roll)


def calm_observations(length=60):
    time = np.arange(length, dtype=np.float32)
    return np.stack([1 + 0.05 * np.sin(time / 5), 330 + 2 * np.cos(time / 7)], axis=1)


def no_overrides(length=60):
    return np.full((length, 2), np.nan, np.float32)


def test_a_guard_is_a_policy(guarded):
    assert isinstance(guarded, Policy)
    carry = guarded.initial_carry()
    assert np.isnan(carry.previous).all()
    assert int(carry.report.flags) == 0
    structure = jax.tree.structure(carry)
    carry, _ = guarded(carry, jnp.array([1.0, 330.0]))
    assert jax.tree.structure(carry) == structure
    assert jax.tree.structure(guarded.sent(carry, carry.previous)) == structure


def test_ten_thousand_hostile_steps_stay_finite_and_admissible(guarded):
    rng = np.random.default_rng(3)
    special = np.array([np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-40, 0.0], np.float32)
    shape = (100, 100, 2)
    calm = np.broadcast_to(calm_observations(100), shape)
    observations = np.where(rng.random(shape) < 0.1, rng.choice(special, shape), calm)
    carry, (actions, _, report) = jax.jit(jax.vmap(roll, (None, 0, None)))(
        guarded, observations, no_overrides(100)
    )
    actions = np.asarray(actions)
    assert np.isfinite(actions).all()
    assert ((actions >= LOW) & (actions <= HIGH)).all()
    assert (np.abs(np.diff(actions, axis=1)) <= STEP * (1 + 1e-5) + 1e-4).all()
    nonfinite = ~np.isfinite(observations).all(axis=-1)
    np.testing.assert_array_equal((report.flags & Flag.OBSERVATION_NONFINITE) != 0, nonfinite)
    assert ((report.flags & Flag.FALLBACK_USED) != 0)[nonfinite].all()
    for leaf in jax.tree.leaves(
        carry._replace(held=(), scores=(), band=())
    ):  # these may be infinite
        assert np.isfinite(leaf).all()
    single = ROLL(guarded, observations[7], no_overrides(100))[1][0]
    np.testing.assert_allclose(single, actions[7], rtol=1e-6)
    eager, carry = [], guarded.initial_carry()
    for row in zip(observations[7][:10], no_overrides(10), strict=True):
        carry, (action, _, _) = advance(guarded, carry, jax.tree.map(jnp.asarray, row))
        eager.append(action)
    np.testing.assert_allclose(eager, actions[7, :10], rtol=1e-6)


def test_hostile_reports_of_what_was_sent_are_survived(guarded):
    rng = np.random.default_rng(4)
    special = np.array([np.inf, -np.inf, 3.4e38, -3.4e38, 1e-40, 500.0, 0.0], np.float32)
    shape = (100, 100, 2)
    overrides = np.where(rng.random(shape) < 0.2, rng.choice(special, shape), np.nan)
    observations = np.broadcast_to(calm_observations(100), shape)
    carry, (actions, _, _) = jax.jit(jax.vmap(roll, (None, 0, 0)))(
        guarded, observations, overrides.astype(np.float32)
    )
    actions = np.asarray(actions)
    assert np.isfinite(actions).all()
    assert ((actions >= LOW) & (actions <= HIGH)).all()
    for part in (carry.policy, carry.fallback, carry.report):
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(part))


def test_hand_over_to_the_pid_has_no_bump(guarded, pid, network):
    """The same loss of the policy, with and without tracking by ``sent``."""
    observations = calm_observations()
    broken = eqx.tree_at(lambda g: g.policy.offset, guarded, jnp.full((2,), jnp.nan))
    carry, (actions, _, _) = ROLL(guarded, observations, no_overrides())
    next_obs = jnp.asarray(observations[-1] + np.array([0.001, 0.1], np.float32))
    after, action = broken(carry, next_obs)
    assert int(after.report.flags) & Flag.REQUEST_NONFINITE
    jump = np.abs(np.asarray(action) - np.asarray(actions[-1]))
    assert (jump < [0.5, 0.5]).all()

    untracked = pid.initial_carry()
    for obs in observations:
        untracked, alone = pid(untracked, jnp.asarray(obs))
    bump = np.abs(np.asarray(alone) - np.asarray(actions[-1]))
    assert (bump > 5 * jump).all()


def test_no_bump_where_a_loop_has_no_integral_action_and_none_at_hand_back(spec, network, pid):
    """The offset of a hand-over decays; without it the action would jump by tens of units."""
    proportional = dataclasses.replace(pid, ki=jnp.zeros(2))
    limits = action_constraints(spec)  # no rate limit that would hide a jump
    safe = guard(network, limits, proportional, spec)
    plain = guard(network, limits, proportional, spec, supervision=supervision(settle=0.0))
    observations = calm_observations(120)
    observations[60:70, 1] = np.nan
    runs = {}
    for name, policy in (("offset", safe), ("none", plain)):
        _, (actions, _, report) = ROLL(policy, observations, no_overrides(120))
        used = np.flatnonzero((np.asarray(report.flags) & Flag.FALLBACK_USED) != 0)
        assert used.tolist() == list(range(60, 74))  # five clean steps, the fifth hands back
        moves = np.abs(np.diff(np.asarray(actions), axis=0))
        runs[name] = moves, np.asarray(actions), np.asarray(report.flags)
    moves, actions, flags = runs["offset"]
    calm = moves[30:59].max(axis=0)
    take_over, hand_back = 59, 73
    for at in (take_over, hand_back):
        jump = runs["none"][0][at]
        assert jump[0] > 10 * calm[0]
        assert moves[at][0] < 0.12 * jump[0] + calm[0]
    assert flags[60] & flags[74] & Flag.HAND_OVER
    # Later both are the controllers' own laws again.
    assert (np.abs(actions[-1] - runs["none"][1][-1]) < [0.3, 0.1]).all()


def test_a_flickering_sensor_does_not_make_policy_and_fallback_take_turns(spec, network, pid):
    safe = guard(network, action_constraints(spec, RATES), pid, spec)
    observations = calm_observations(200)
    observations[50:150:2, 1] = np.nan
    _, (_, _, report) = ROLL(safe, observations, no_overrides(200))
    used = ((np.asarray(report.flags) & Flag.FALLBACK_USED) != 0).astype(int)
    assert np.abs(np.diff(used)).sum() == 2
    assert used[50:149].all()
    assert not used[160:].any()


def test_the_pid_follows_what_a_person_sends(guarded):
    """In manual mode the plant receives other actions; taking over starts from those."""
    overrides = np.broadcast_to(np.array([70.0, 312.0], np.float32), (60, 2))
    carry, _ = ROLL(guarded, calm_observations(), overrides)
    np.testing.assert_array_equal(carry.previous, [70.0, 312.0])
    broken = eqx.tree_at(lambda g: g.policy.offset, guarded, jnp.full((2,), jnp.nan))
    _, action = broken(carry, jnp.asarray(calm_observations()[-1]))
    np.testing.assert_allclose(action, [70.0, 312.0], atol=0.5)


def test_one_bad_observation_does_not_poison_the_carries(guarded):
    clean = calm_observations()
    dirty = clean.copy()
    dirty[20, 1] = np.nan
    carry, (actions, _, report) = ROLL(guarded, dirty, no_overrides())
    used = np.flatnonzero((report.flags & Flag.FALLBACK_USED) != 0)
    assert used.tolist() == [20, 21, 22, 23, 24]  # back after five clean steps
    assert all(
        np.isfinite(leaf).all() for leaf in jax.tree.leaves(carry._replace(held=(), band=()))
    )
    _, (undisturbed, _, _) = ROLL(guarded, clean, no_overrides())
    np.testing.assert_allclose(actions[-1], undisturbed[-1], atol=0.1)
    # The second loop had no measurement and held; the first went on controlling.
    assert actions[20, 1] == actions[19, 1]
    assert actions[20, 0] != actions[19, 0]


def test_a_proposal_within_the_limits_passes_to_the_bit(guarded, network):
    observations = calm_observations()
    # From rest the stand-in ramps up; once it moves slowly nothing is changed.
    _, (actions, _, report) = ROLL(guarded, observations, no_overrides())
    carry, proposals = network.initial_carry(), []
    for obs in observations:
        carry, proposal = jax.jit(network.__call__)(carry, jnp.asarray(obs))
        proposals.append(np.asarray(proposal))
    untouched = np.asarray(report.flags) == 0
    assert untouched.sum() > 30
    np.testing.assert_allclose(np.asarray(actions)[untouched], np.stack(proposals)[untouched], 1e-6)
    np.testing.assert_array_equal(np.asarray(report.intervention)[untouched], 0)


@pytest.mark.parametrize("reading", [1.1, np.nan])
def test_who_acted_is_told_what_was_sent_and_the_other_follows(spec, pid, reading):
    """The policy acts, or the fallback, where an observation is lost."""
    safe = guard(pid, action_constraints(spec), pid, spec)
    carry, _ = safe(safe.initial_carry(), jnp.array([1.1, 331.0]))
    carry, _ = safe(carry, jnp.array([reading, 331.0]))
    action = jnp.array([20.0, 290.0])
    after = safe.sent(carry, action)
    parts = (after.policy, after.fallback)
    acted, other = parts if np.isfinite(reading) else reversed(parts)
    jax.tree.map(np.testing.assert_array_equal, acted, pid.sent(carry.policy, action))
    jax.tree.map(np.testing.assert_array_equal, other, pid.follow(carry.policy, action))
    assert not np.allclose(acted.integral, other.integral)
    followed = safe.follow(carry, action)
    for part in (followed.policy, followed.fallback):
        jax.tree.map(np.testing.assert_array_equal, part, other)
    np.testing.assert_array_equal(followed.previous, action)


def test_an_unknown_last_action_never_switches_the_rate_limit_off(guarded):
    """Nobody says what was sent: assumed for three steps, then the fallback acts; never faster."""
    carry = guarded.initial_carry()
    unknown = jnp.full((2,), jnp.nan)
    step = jax.jit(lambda carry, obs: guarded(guarded.sent(carry, unknown), obs))
    actions, names = [], []
    for obs in calm_observations(12) * np.array([1.0, 1.1], np.float32):
        carry, action = step(carry, jnp.asarray(obs))
        actions.append(np.asarray(action))
        names.append(flag_names(int(carry.report.flags)))
    assert (np.abs(np.diff(actions, axis=0)) <= STEP).all()
    assert "previous_unknown" in names[0]
    assert [("previous_assumed" in one) for one in names[:4]] == [False, True, True, True]
    assert not any("fallback_used" in one for one in names[1:4])
    assert all({"previous_unknown", "fallback_used"} <= set(one) for one in names[4:])


def test_one_lost_read_back_is_assumed_and_being_told_ends_it(guarded):
    carry, _ = ROLL(guarded, calm_observations(), no_overrides())
    carry, action = guarded(carry, jnp.array([1.0, 330.0]))
    lost = guarded.sent(carry, jnp.array([jnp.nan, 300.0]))
    np.testing.assert_array_equal(lost.previous, [action[0], 300.0])
    carry, action = guarded(lost, jnp.array([1.0, 330.0]))
    assert "previous_assumed" in flag_names(int(carry.report.flags))
    carry, _ = guarded(guarded.sent(carry, action), jnp.array([1.0, 330.0]))
    assert "previous_assumed" not in flag_names(int(carry.report.flags))


def test_an_observation_beyond_its_measuring_range_hands_over(guarded):
    """All 1e9, a dead historian's zeros, degrees Celsius for kelvin, channels in wrong order."""
    carry, _ = ROLL(guarded, calm_observations(), no_overrides())
    assert "fallback_used" not in flag_names(int(carry.report.flags))
    for wrong in ([1e9, 1e9], [0.0, 0.0], [1.0, 57.0], [330.0, 1.0]):
        after, _ = guarded(carry, jnp.array(wrong))
        assert {"monitor_alarm", "fallback_used"} <= set(flag_names(int(after.report.flags)))
        assert after.scores[0] > 0.05


def lowest(admissible, target, scale):
    """A poor candidate: a point of the set, and not near."""
    return admissible.low


def test_a_guard_takes_another_candidate_for_its_rows(spec, pid):
    total = {"valve": {"value": 1.0, "per": "%"}}
    rows = [{"kind": "linear", "sum": total, "at_most": 40.0, "plus": {}}]
    wild, limits = ConstantPolicy(jnp.array([90.0, 310.0])), declared_constraints(spec, rows)
    for settings, expected in (({}, [40.0, 310.0]), ({"candidate": lowest}, LOW)):
        safe = guard(wild, limits, pid, spec, **settings)
        carry, action = safe(safe.initial_carry(), jnp.array([1.0, 330.0]))
        np.testing.assert_allclose(action, expected, rtol=1e-5)
        assert int(carry.report.flags) & Flag.ROWS_ACTIVE


def test_another_instance_uses_the_same_program(spec, network, pid):
    limits = action_constraints(spec, RATES)
    other = Network(network.weights * 2, network.offset)
    first, second = (guard(policy, limits, pid, spec) for policy in (network, other))
    arguments = (jnp.asarray(calm_observations(5)), jnp.asarray(no_overrides(5)))
    no_recompile(roll, (first, *arguments), (second, *arguments))


def test_simple_policies_can_be_guarded_and_keys_reach_the_policy(spec):
    limits = action_constraints(spec)
    explorer = UniformPolicy(jnp.array([0.0, 280.0]), jnp.array([100.0, 320.0]))
    safe = guard(explorer, limits, ConstantPolicy(jnp.array([50.0, 300.0])), spec)
    keys = jax.random.split(jax.random.key(0))
    obs = jnp.array([1.0, 330.0])
    actions = [safe(safe.initial_carry(), obs, key)[1] for key in keys]
    assert not np.allclose(*actions)


def test_misuse_is_refused(spec, network, pid):
    limits = action_constraints(spec)
    swapped = dataclasses.replace(spec, action=spec.action[::-1])
    with pytest.raises(InputError, match=r"the constraints are for .*, but the specification has"):
        guard(network, limits, pid, swapped)
    with pytest.raises(InputError, match="reset_after must be an integer of at least 1, got 0"):
        supervision(reset_after=0, settle=1.0)
    short = ConstantPolicy(jnp.ones(1))
    cases = {
        "one observation of rank 1, got shape": (network, pid, jnp.ones((5, 2))),
        r"the policy gives an action of shape \(1,\)": (short, pid, jnp.ones(2)),
        r"the fallback gives an action of shape \(1,\)": (pid, short, jnp.ones(2)),
    }
    for message, (policy, fallback, obs) in cases.items():
        safe = guard(policy, limits, fallback, spec)
        carry = safe.initial_carry()
        with pytest.raises(ValueError, match=message):
            safe(carry, obs)


def test_the_fallback_may_be_any_policy(spec, pid):
    safe = guard(pid, action_constraints(spec), pid, spec)
    assert isinstance(safe.fallback, PID)
    _, action = safe(safe.initial_carry(), jnp.array([jnp.nan, jnp.nan]))
    assert action.tolist() == [50.0, 300.0]


def test_an_infinite_proposal_during_a_hand_over_is_still_one(spec, pid):
    """The offset of a hand-over must not make a finite request of it."""
    limits = action_constraints(spec)
    for bad in (jnp.inf, -jnp.inf):
        wild = ConstantPolicy(jnp.array([bad, 300.0]))
        safe = guard(wild, limits, pid, spec)
        calm = jnp.array([1.2, 331.0])
        carry = safe.initial_carry()._replace(acted=jnp.asarray(0, jnp.int32))
        carry = safe.sent(carry, jnp.array([20.0, 310.0]))._replace(offset=jnp.array([9.0, 9.0]))
        carry, _ = safe(carry, calm)
        assert {"request_nonfinite", "fallback_used"} <= set(flag_names(int(carry.report.flags)))
