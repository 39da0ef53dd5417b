"""A plant whose best action under a limit is known: reward ``a``, cost ``max(0, a)``.

An episode has 20 steps and a limit of 6, so the constant action 0.3 is best: return 6, cost 6.
Without the limit it is 1: return 20, cost 20. The observation says nothing but the step, or is
noise. Cost critics go on behind a truncation, so with the step they bootstrap from a state of which
the log has no row, and predict costs far above those that occur.
"""

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.learning import Log, begin_training, log_tables, rows_for, train_chunk
from neorl_core import (
    Channel,
    CostChannel,
    DataStatistics,
    FieldStatistics,
    Spec,
    Transition,
    as_arrays,
)

STEPS, LIMIT, EPISODES = 20, 6.0, 200
SPEC = Spec(
    obs=(Channel("t", "1", 0.0, 1.0),),
    action=(Channel("a", "1", -1.0, 1.0),),
    cost=(CostChannel("c", "1", LIMIT, "episode"),),
    dt=1.0,
    horizon=STEPS,
)


def summary(x):
    x = np.asarray(x, np.float64)
    fields = (float(len(x)), x.mean(0), x.std(0), x.min(0), x.max(0))
    return FieldStatistics(*(np.asarray(field, np.float32) for field in fields))


def toy_log(*, timed=True):
    """Every episode has a mean action of its own; three fifths keep the limit. And statistics."""
    rng = np.random.default_rng(0)
    level = np.linspace(-0.6, 0.9, EPISODES)[:, None]
    action = np.clip(rng.normal(level, 0.3, size=(EPISODES, STEPS)), -1, 1)
    cost = np.maximum(action, 0)
    time = np.tile(np.arange(STEPS + 1) / STEPS, (EPISODES, 1))
    seen = time if timed else rng.uniform(size=time.shape)
    ends = np.tile(np.arange(STEPS) == STEPS - 1, EPISODES)

    def column(x):
        return np.asarray(x, np.float32).reshape(EPISODES * STEPS, -1)

    log = Transition(
        column(seen[:, :-1]), column(action), column(action)[:, 0], column(cost),
        column(seen[:, 1:]), terminated=ends & False, truncated=ends,
    )  # fmt: skip
    returns, kept = action.sum(1), cost.sum(1) <= LIMIT
    statistics = DataStatistics(
        *map(summary, (log.obs, log.action, log.reward, log.cost, returns)),
        summary(np.full(EPISODES, STEPS)),
        terminated=summary(log.terminated),
        kept_return=summary(returns[kept]),
    )
    return log, statistics, returns, kept


def trained(learner, updates, seed=0, *, timed=True):
    """The state after so many updates, and the mean of every metric over the last tenth."""
    log, statistics, _, _ = toy_log(timed=timed)
    key = jax.random.key(seed)
    rows = rows_for(learner, log, ())
    tables = jax.device_put(log_tables(learner, SPEC, rows))
    arrays, source = as_arrays(learner), learner.source(Log())
    state = learner.init(SPEC, statistics, key)
    training = begin_training(arrays, source, state, tables, key)
    n = updates // 10
    for first in range(0, updates, n):
        training, metrics = train_chunk(
            arrays, source, training, tables, jnp.int32(first), key, n_updates=n
        )
    return training.learner, {name: float(x) for name, x in metrics.items()}


def driven(policy):
    """Return and cost of one episode under a policy without noise."""

    def step(carry, time):
        carry, action = policy(carry, time[None], None)
        return policy.sent(carry, action), action[0]

    times = jnp.arange(STEPS, dtype=jnp.float32) / STEPS
    _, actions = jax.jit(lambda carry: jax.lax.scan(step, carry, times))(policy.initial_carry())
    actions = np.asarray(actions, np.float64)
    return actions.sum(), np.maximum(actions, 0).sum()
