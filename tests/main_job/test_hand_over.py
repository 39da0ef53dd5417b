"""The demo's own PID, two of whose loops have no integral action, takes over without a bump."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from neorl_core.control import follow
from neorl_envs.plants import ChemicalReactor
from neorl_safety.constraints import action_constraints
from neorl_safety.filters import Flag
from neorl_safety.guards import guard, supervision
from neorl_train.judging import paired_starts

LOST_AT, STEPS, STARTS = 30, 36, 32


class Losing(eqx.Module):
    """A policy that gives no action from one step on."""

    policy: object

    def initial_carry(self):
        return self.policy.initial_carry(), jnp.zeros((), jnp.int32)

    def __call__(self, carry, obs, key=None):
        inner, step = carry
        inner, action = self.policy(inner, obs, key)
        return (inner, step + 1), jnp.where(step < LOST_AT, action, jnp.nan)

    def sent(self, carry, action):
        return self.policy.sent(carry[0], action), carry[1]

    def follow(self, carry, action):
        return follow(self.policy, carry[0], action), carry[1]


@jax.jit
def moves(plant, policy, starts):
    """Moves of the applied action from step to step, and who acted."""

    def step(now, key):
        state, carry, obs, last, params = now
        carry, action = policy(carry, obs, None)
        state, out = plant.step(params, state, action, key)
        used = (carry.report.flags & Flag.FALLBACK_USED) != 0
        carry = policy.sent(carry, out.applied)
        return (state, carry, out.obs, out.applied, params), (out.applied - last, used)

    def episode(start):
        width = plant.spec.n_action
        begin = start.state, policy.initial_carry(), start.obs, jnp.zeros(width), start.params
        return jax.lax.scan(step, begin, start.noise_keys[:STEPS])[1]

    return jax.vmap(episode)(starts)


def test_the_demos_pid_takes_over_without_a_bump():
    plant = ChemicalReactor()
    tunings = plant.tunings()
    pid, other = tunings[plant.reference], tunings["PID 100/1500"]
    assert (np.asarray(pid.ki) == 0).sum() == 2
    starts = paired_starts(plant, jax.random.key(3), jnp.arange(STARTS))
    jumps = {}
    for name, settle in (("offset", 10 * plant.spec.dt), ("none", 0.0)):
        safe = guard(
            Losing(other), action_constraints(plant.spec, plant.action_rates()), pid, plant.spec,
            supervision=supervision(settle=settle),
        )  # fmt: skip
        moved, used = map(np.asarray, moves(plant, safe, starts))
        assert used[:, LOST_AT:].all()
        assert not used[:, 1:LOST_AT].any()
        size = np.abs(moved)
        ordinary = np.median(size[:, LOST_AT - 10 : LOST_AT], axis=(0, 1))
        jumps[name] = np.median(size[:, LOST_AT], axis=0), ordinary
    bump, ordinary = jumps["none"][0][0], jumps["none"][1][0]
    # The setpoints differ by 6 K, at 1,500 kg/h per K: without the offset the rate limit acts.
    assert bump == 6000.0
    assert jumps["offset"][0][0] < 9000 * (1 - np.exp(-1 / 10)) + ordinary
