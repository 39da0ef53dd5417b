"""DMSD and Pipeline of NeoRL-2, restated: logs for fits, and scores of policies.

Dynamics and normalisation: polixir/NeoRL2; DMSD's matrices as its official log has them.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.classical import Loop, Task
from neorl_core import Channel, Spec, Transition

DMSD_SPEC = Spec(
    tuple(Channel(n, "m", -2.0, 2.0) for n in ("p1", "p2", "v1", "v2", "target1", "target2")),
    (Channel("u1", "1", -1.0, 1.0), Channel("u2", "1", -1.0, 1.0)),
    (),
    0.2,
    100,
)
DMSD_TASK = Task((Loop("p1", "u1", "target1"), Loop("p2", "u2", "target2")), ("v1", "v2"))
DMSD_A = np.array(
    [[1, 0, 0.2, 0], [0, 1, 0, 0.2], [-0.04, 0.02, 0.92, 0.04], [0.02, -0.04, 0.04, 0.92]]
)
DMSD_B = np.array([[0, 0], [0, 0], [0.3, 0], [0, 0.3]])

PIPELINE_SPEC = Spec(
    (Channel("outflow", "1", 0.0, 200.0), Channel("target", "1", 0.0, 200.0)),
    (Channel("gate", "1", -1.0, 1.0),),
    (),
    1.0,
    1000,
)
PIPELINE_TASK = Task((Loop("outflow", "gate", "target"),))
TARGETS, CHANGE, SLOTS, STEPS = (50.0, 80.0, 110.0, 140.0), 0.003, 20, 1000


def dmsd_log(path: Path) -> Transition:
    """The official train file: 1,000 episodes of 100 rows."""
    columns = np.load(path)
    rows = len(columns["reward"])
    return Transition(
        columns["obs"],
        columns["action"],
        columns["reward"],
        next_obs=columns["next_obs"],
        terminated=np.zeros(rows, bool),
        truncated=np.arange(rows) % 100 == 99,
    )


def dmsd_scores(policy, log: Transition, episodes: int) -> np.ndarray:
    """Normalised scores on the starts and targets of the first logged episodes."""
    obs = np.asarray(log.obs, np.float32).reshape(-1, 100, 6)[:episodes]
    a, b = jnp.asarray(DMSD_A, jnp.float32), jnp.asarray(DMSD_B, jnp.float32)

    def episode(policy, start, targets):
        def step(state, target):
            carry, x = state
            carry, action = policy(carry, jnp.concatenate([x, target]), None)
            action = jnp.clip(action, -1, 1)
            carry, x = policy.sent(carry, action), a @ x + b @ action
            return (carry, x), jnp.sum(-jnp.log(jnp.abs(x[:2] - target) + 0.01))

        return jnp.sum(jax.lax.scan(step, (policy.initial_carry(), start), targets)[1])

    returns = jax.jit(jax.vmap(episode, (None, 0, 0)))(policy, obs[:, 0, :4], obs[:, :, 4:])
    return 100 * (np.asarray(returns, np.float64) - 30.60) / (849.51 - 30.60)


def pipeline_log(episodes: int, seed: int) -> Transition:
    """A weak proportional loop with an operator's noise in it."""
    rng = np.random.default_rng(seed)
    start = rng.uniform(80, 120, size=episodes)
    gate, slots = start.copy(), np.repeat(start[:, None], SLOTS, axis=1)
    target, rows = rng.choice(TARGETS, size=episodes), []
    for _ in range(STEPS):
        obs = np.stack([slots[:, -1], target], axis=1)
        action = 0.02 * (target - slots[:, -1]) + 0.5 * rng.normal(size=episodes)
        action = np.clip(action, -1, 1)
        gate = np.clip(gate + action, 0, 200)
        slots = np.concatenate([gate[:, None], slots[:, :-1]], axis=1)
        later = np.stack([slots[:, -1], target], axis=1)
        rows.append((obs, action[:, None], later))
        again = rng.choice(TARGETS, size=episodes)
        target = np.where(rng.uniform(size=episodes) < CHANGE, again, target)
    obs, action, later = (
        np.stack(part, axis=1).reshape(episodes * STEPS, -1) for part in zip(*rows, strict=True)
    )
    ends = np.arange(len(obs)) % STEPS == STEPS - 1
    return Transition(
        obs,
        action,
        np.zeros(len(obs)),
        next_obs=later,
        terminated=np.zeros(len(obs), bool),
        truncated=ends,
    )


def pipeline_scores(policy, episodes: int, key) -> np.ndarray:
    """Normalised scores of fresh episodes."""
    levels = jnp.asarray(TARGETS)

    def episode(policy, key):
        first, one, two, three = jax.random.split(key, 4)
        start = jax.random.uniform(first, (), minval=80.0, maxval=120.0)
        changes = jax.random.uniform(one, (STEPS,)) < CHANGE
        drawn = jax.random.choice(two, levels, (STEPS,))
        target = jax.random.choice(three, levels)

        def step(state, draw):
            carry, gate, slots, target = state
            carry, action = policy(carry, jnp.stack([slots[-1], target]), None)
            action = jnp.clip(action, -1, 1)
            carry = policy.sent(carry, action)
            gate = jnp.clip(gate + action[0], 0, 200)
            slots = jnp.concatenate([gate[None], slots[:-1]])
            reward = ((200 - jnp.abs(slots[-1] - target)) / 100) ** 2 - 3
            return (carry, gate, slots, jnp.where(draw[0], draw[1], target)), reward

        begin = (policy.initial_carry(), start, jnp.full(SLOTS, start), target)
        return jnp.sum(jax.lax.scan(step, begin, (changes, drawn))[1])

    returns = jax.jit(jax.vmap(episode, (None, 0)))(policy, jax.random.split(key, episodes))
    return 100 * (np.asarray(returns, np.float64) + 296) / (751 + 296)
