"""The emergency stop: at once, until somebody releases it, whatever the sensors say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import Channel, Spec
from neorl_core.control import ConstantPolicy
from neorl_safety.constraints import action_constraints
from neorl_safety.filters import flag_names
from neorl_safety.guards import guard, supervision

SPEC = Spec(
    obs=(Channel("level", "m", 0.0, 2.0),),
    action=(Channel("valve", "%", 0.0, 100.0),),
    cost=(),
    dt=10.0,
    horizon=50,
)
POLICY, SAFE = 80.0, 10.0


@pytest.fixture(scope="module")
def safe():
    policies = (ConstantPolicy(jnp.array([one])) for one in (POLICY, SAFE))
    policy, fallback = policies
    settings = supervision(settle=1000.0, dwell=2, reset_after=2)
    return guard(policy, action_constraints(SPEC, [2.0]), fallback, SPEC, supervision=settings)


@pytest.fixture(scope="module")
def step(safe):
    return jax.jit(lambda carry: safe(safe.sent(carry, carry.previous), jnp.ones(1)))


def run(step, carry, count):
    actions, names = [], []
    for _ in range(count):
        carry, action = step(carry)
        actions.append(float(action[0]))
        names.append(flag_names(int(carry.report.flags)))
    return carry, actions, names


def test_a_stop_acts_in_the_next_step_without_a_glide_and_stays_until_it_is_released(safe, step):
    """Row N20: a stop acts in the next step and stays until it is released."""
    carry, actions, names = run(step, safe.initial_carry(), 8)
    assert actions[-1] == pytest.approx(POLICY, abs=1e-3)
    assert not any("fallback_used" in one for one in names[1:])
    carry, actions, names = run(step, safe.stop(carry), 100)
    # At the rate limit, 20 % a step, and no slower: an offset of 1,000 s would take minutes.
    np.testing.assert_allclose(actions[:5], [60.0, 40.0, 20.0, 10.0, 10.0], atol=1e-3)
    assert all({"emergency_stop", "latched", "fallback_used"} <= set(one) for one in names)
    assert actions[-1] == SAFE
    carry, actions, names = run(step, safe.release(carry), 3)
    assert not any("emergency_stop" in one for one in names)
    assert "fallback_used" not in names[-1]
    assert actions[0] < 12.0  # the hand-back glides: nobody is in a hurry to start


def test_a_stop_holds_whatever_the_inputs_are_and_a_latch_is_no_stop(safe):
    next_step = jax.jit(lambda carry, sent, obs: safe(safe.sent(carry, sent), obs))
    for obs, sent in ((jnp.nan, jnp.nan), (1e30, 50.0), (1.0, jnp.inf)):
        carry = safe.stop(safe.initial_carry())
        carry, action = next_step(carry, jnp.array([sent]), jnp.array([obs]))
        assert {"emergency_stop", "fallback_used"} <= set(flag_names(int(carry.report.flags)))
        assert 0.0 <= float(action[0]) <= 100.0
    twice = safe.stop(safe.stop(safe.initial_carry()))
    assert not bool(safe.release(twice).supervisor.stopped)
    tripped = supervision(settle=0.0, latch_after=1)
    nan = ConstantPolicy(jnp.array([jnp.nan]))
    latching = guard(nan, action_constraints(SPEC), ConstantPolicy(jnp.ones(1)), SPEC,
                     supervision=tripped)  # fmt: skip
    carry, _ = jax.jit(latching.__call__)(latching.initial_carry(), jnp.ones(1))
    names = flag_names(int(carry.report.flags))
    assert "latched" in names
    assert "emergency_stop" not in names
