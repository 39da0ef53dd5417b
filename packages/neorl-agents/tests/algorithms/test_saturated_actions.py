"""Four of five logged actions at a bound, as of valves that are open or shut: no collapse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import AWAC, BC, CQL, EDAC, IQL, TD3BC, XQL, CalQL, ReBRAC
from neorl_agents.testing import make_problem, statistics_of
from neorl_core import as_arrays, highs, lows

SMALL = {"hidden": (16, 16), "batch_size": 64}
RATES = dict.fromkeys(("actor_learning_rate", "critic_learning_rate"), 3e-3)
SOFT = {**SMALL, **RATES, "temperature_learning_rate": 3e-3}
NIGHTLY = ("cql", "cal_ql", "edac")
LEARNERS = {
    "awac": AWAC(**SMALL, **RATES),
    "rebrac": ReBRAC(**SMALL, **RATES, actor_weight=0.1),
    "cql": CQL(**SOFT, n_samples=4),
    "cal_ql": CalQL(**SOFT, n_samples=4),
    "edac": EDAC(**SOFT, n_critics=20, diversity_weight=5.0),
    "bc": BC(learning_rate=3e-3, **SMALL),
    "bc_mixture": BC(learning_rate=3e-3, variant="mixture", n_components=3, **SMALL),
    "td3_bc": TD3BC(actor_learning_rate=3e-3, critic_learning_rate=3e-3, **SMALL),
    "iql": IQL(**SMALL, **dict.fromkeys(("actor_learning_rate", "critic_learning_rate"), 3e-3)),
    "xql": XQL(**SMALL, **dict.fromkeys(("actor_learning_rate", "critic_learning_rate"), 3e-3)),
}


@pytest.fixture(scope="module")
def valves():
    """The sign of the first observation says which bound; a fifth of the actions are between."""
    problem = make_problem()
    rng = np.random.default_rng(2)
    rows = len(problem.log.reward)
    sign = np.sign(np.asarray(problem.log.obs[:, 0]) - 300.0)
    between = rng.uniform(size=rows) < 0.2
    unit = np.where(between, 0.5 * sign, sign)[:, None] * np.ones((1, 2))
    low, high = (np.array(end(problem.spec.action)) for end in (lows, highs))
    action = low + (unit + 1) / 2 * (high - low)
    log = problem.log._replace(
        action=jnp.asarray(action, jnp.float32),
        reward=jnp.asarray(sign * unit[:, 0] + 0.1 * rng.normal(size=rows), jnp.float32),
        terminated=jnp.ones(rows, bool),
        truncated=jnp.zeros(rows, bool),
    )
    return problem._replace(log=log, statistics=statistics_of(log)), sign


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.nightly if name in NIGHTLY else ()) for name in LEARNERS],
)
def test_the_policy_goes_to_the_bounds_of_the_log(name, valves):
    problem, sign = valves
    learner = LEARNERS[name]
    state = learner.init(problem.spec, problem.statistics, jax.random.key(0))
    arrays, batches = as_arrays(learner), [problem.batch(learner, seed=i) for i in range(8)]
    update = jax.jit(type(learner).update)
    for i in range(600):
        state, _ = update(arrays, state, batches[i % 8], jax.random.key(i))
    policy = learner.policy(state)
    actions = jax.vmap(lambda obs: policy((), obs)[1])(problem.log.obs)
    low, high = (np.array(end(problem.spec.action)) for end in (lows, highs))
    unit = 2 * (np.asarray(actions) - low) / (high - low) - 1
    right = np.sign(unit[:, 0]) == sign
    assert right.mean() > 0.9
    assert np.abs(unit[right, 0]).mean() > 0.7
