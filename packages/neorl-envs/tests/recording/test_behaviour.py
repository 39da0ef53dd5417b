import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from neorl_core import Policy
from neorl_envs.recording import behaviour_policies
from neorl_envs.recording._behaviour import init_operators, moved_setpoint, operator_step


@jax.jit
def drive(policy, observations, sent, key):
    """Actions of a policy that sees given observations and is told given actions."""

    def step(carry, row):
        obs, received, key = row
        carry, action = policy(carry, obs, key)
        return policy.sent(carry, received), (action, carry)

    keys = jax.random.split(key, len(observations))
    return jax.lax.scan(step, policy.initial_carry(), (observations, sent, keys))[1]


def calm_rows(env, n=200):
    low = jnp.array([c.low for c in env.spec.obs])
    obs = jnp.broadcast_to(low + 1, (n, len(low))).at[:, 0].set(363.15).at[:, 10].set(1.0)
    noise = jax.random.normal(jax.random.key(1), (n,))
    return obs.at[:, 0].add(noise), jax.random.uniform(jax.random.key(2), (n, 3))


def test_without_operators_it_is_the_controller(env):
    plan = env.operator_plan()
    idle = plan._replace(
        amplitude=0 * plan.amplitude,
        setpoint_every=jnp.asarray(1e9),
        hold_every=jnp.asarray(1e9),
    )
    obs, sent = calm_rows(env)
    for name, policy in behaviour_policies(env, plan=idle).items():
        ours, _ = drive(policy, obs, sent, jax.random.key(0))
        theirs, _ = drive(env.tunings()[name], obs, sent, jax.random.key(0))
        np.testing.assert_array_equal(ours, theirs)
        assert isinstance(policy, Policy)


def test_it_does_what_operators_and_controller_do_step_by_step(env):
    plan = env.operator_plan()._replace(hold_every=jnp.asarray(20.0))
    obs, applied = calm_rows(env)
    policy = behaviour_policies(env, plan=plan)[env.reference]
    actions, _ = drive(policy, obs, applied, jax.random.key(0))
    tuning, position = env.tunings()[env.reference], jnp.full(3, jnp.nan)
    control, shift, held = tuning.initial_carry(), None, 0
    for t, key in enumerate(jax.random.split(jax.random.key(0), len(obs))):
        for_start, for_operators = jax.random.split(key)
        shift = init_operators(plan, for_start) if shift is None else shift
        shift, manual, signal = operator_step(plan, shift, obs[t], for_operators)
        setpoint = moved_setpoint(plan, shift, tuning.setpoint)
        controller = dataclasses.replace(tuning, setpoint=setpoint)
        control, proposed = controller(control, obs[t])
        expected = jnp.where(manual, position, proposed + signal)
        np.testing.assert_allclose(actions[t], expected, rtol=1e-5)
        received, position = applied[t] - signal, applied[t]
        sent, followed = (tell(control, received) for tell in (tuning.sent, tuning.follow))
        control = jax.tree.map(lambda a, b, m=manual: jnp.where(m, a, b), followed, sent)
        held += int(manual.sum())
    assert held > 0
