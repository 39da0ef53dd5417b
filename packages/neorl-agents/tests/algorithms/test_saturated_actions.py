"""Four of five logged actions at a bound, as of valves that are open or shut: no collapse.

Every learner of the table is here but those that keep limits, and those of sequences, whose
policies have a memory. SAC-N knows no log but through its critics' least value: where the log shows
one bound alone in each state it needs more critics than a test can train (published: up to 500),
and EDAC needs 20; where the log shows both bounds, 4 do for SAC-N.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import ALGORITHMS, AWAC, BC, CQL, EDAC, FQL, IQL, SACN, TD3BC, XQL, CalQL, ReBRAC
from neorl_agents.algorithms import _rebrac, _td3_bc
from neorl_agents.networks import ensemble, init_mlp, tanh
from neorl_agents.testing import make_problem, sized, statistics_of
from neorl_core import Transition, as_arrays, highs, lows

SMALL = {"hidden": (16, 16), "batch_size": 64}
RATES = dict.fromkeys(("actor_learning_rate", "critic_learning_rate"), 3e-3)
SOFT = {**SMALL, **RATES, "temperature_learning_rate": 3e-3}
DAILY = ("td3_bc", "iql")
LEARNERS = {
    "awac": sized(AWAC(), **SMALL, **RATES),
    "rebrac": sized(ReBRAC(), **SMALL, **RATES, actor_weight=0.1),
    "cql": sized(CQL(), **SOFT, n_samples=4),
    "cal_ql": sized(CalQL(), **SOFT, n_samples=4),
    "edac": sized(EDAC(), **SOFT, n_critics=20, diversity_weight=5.0),
    "bc": sized(BC(), learning_rate=3e-3, **SMALL),
    "bc_mixture": sized(BC(), learning_rate=3e-3, variant="mixture", n_components=3, **SMALL),
    "td3_bc": sized(TD3BC(), actor_learning_rate=3e-3, critic_learning_rate=3e-3, **SMALL),
    "iql": sized(
        IQL(), **SMALL, **dict.fromkeys(("actor_learning_rate", "critic_learning_rate"), 3e-3)
    ),
    "xql": sized(
        XQL(), **SMALL, **dict.fromkeys(("actor_learning_rate", "critic_learning_rate"), 3e-3)
    ),
    "fql": sized(FQL(), **SMALL, **RATES),
}


BOTH_BOUNDS = {"sac_n": sized(SACN(), **SOFT, n_critics=4)}


def valve_log(*, both):
    """The sign of the first observation says which bound is right; a fifth of actions are between.

    Args:
        both: Whether a third of the rows is at the wrong bound, which the reward tells.
    """
    problem = make_problem()
    rng = np.random.default_rng(2)
    rows = len(problem.log.reward)
    sign = np.sign(np.asarray(problem.log.obs[:, 0]) - 300.0)
    taken = np.where(rng.uniform(size=rows) < 1 / 3, -sign, sign) if both else sign
    between = rng.uniform(size=rows) < 0.2
    unit = np.where(between, 0.5 * taken, taken)[:, None] * np.ones((1, 2))
    low, high = (np.array(end(problem.spec.action)) for end in (lows, highs))
    action = low + (unit + 1) / 2 * (high - low)
    log = problem.log._replace(
        action=jnp.asarray(action, jnp.float32),
        reward=jnp.asarray(sign * unit[:, 0] + 0.1 * rng.normal(size=rows), jnp.float32),
        terminated=jnp.ones(rows, bool),
        truncated=jnp.zeros(rows, bool),
    )
    return problem._replace(log=log, statistics=statistics_of(log)), sign


@pytest.fixture(scope="module")
def valves():
    """One bound in each state, as of an operator who knows which."""
    return valve_log(both=False)


def acted(learner, problem):
    """The first action after 600 updates, in [-1, 1], for every row."""
    state = learner.init(problem.spec, problem.statistics, jax.random.key(0))
    arrays, batches = as_arrays(learner), [problem.batch(learner, seed=i) for i in range(8)]
    update = jax.jit(type(learner).update)
    for i in range(600):
        state, _ = update(arrays, state, batches[i % 8], jax.random.key(i))
    policy = learner.policy(state)
    actions = jax.vmap(lambda obs: policy((), obs)[1])(problem.log.obs)
    low, high = (np.array(end(problem.spec.action)) for end in (lows, highs))
    return (2 * (np.asarray(actions) - low) / (high - low) - 1)[:, 0]


def goes_to_the_bounds(unit, sign):
    right = np.sign(unit) == sign
    assert right.mean() > 0.9
    assert np.abs(unit[right]).mean() > 0.7


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in DAILY else pytest.mark.nightly) for name in LEARNERS],
)
def test_the_policy_goes_to_the_bounds_of_the_log(name, valves):
    problem, sign = valves
    goes_to_the_bounds(acted(LEARNERS[name], problem), sign)


@pytest.mark.nightly
@pytest.mark.parametrize("name", BOTH_BOUNDS)
def test_four_critics_do_where_the_log_shows_both_bounds(name):
    problem, sign = valve_log(both=True)
    goes_to_the_bounds(acted(BOTH_BOUNDS[name], problem), sign)


ON_A_PLANT = {"sac", "td3", "ppo", "reinforce", "dqn"}
"""Their actions are tried, and do not follow a log."""


def test_every_learner_is_tested():
    # On rows of a log alone, learners on rollouts in a model are plain soft actor-critics.
    kinds = ALGORITHMS.items()
    plain = {name for name, kind in kinds if not kind.keeps_limits and not kind().fits()}
    plain -= ON_A_PLANT | {"dt"}
    assert plain <= LEARNERS.keys() | BOTH_BOUNDS.keys()


@pytest.mark.parametrize("learner", [_td3_bc, _rebrac])
def test_no_gradient_reaches_an_actor_that_is_held(learner):
    """Its output bias alone is far out: a step of any size would leave all of it where it is."""
    rng = np.random.default_rng(0)
    rows = Transition(
        jnp.asarray(rng.normal(size=(32, 3)), jnp.float32),
        jnp.asarray(rng.uniform(-0.9, 0.9, (32, 2)), jnp.float32),
        jnp.zeros(32),
    )
    actor_key, critic_key = jax.random.split(jax.random.key(0))
    actor = init_mlp((3, 8, 2), actor_key, output=tanh)
    critics = ensemble(2, lambda key: init_mlp((5, 8, 1), key), critic_key)
    slope = jax.jit(jax.grad(learner._actor_loss, has_aux=True))
    gradient, free = slope(actor, critics, rows, jnp.asarray(0.01))
    assert free["held_at_bound"] == 0
    assert any((np.asarray(leaf) != 0).any() for leaf in jax.tree.leaves(gradient))
    stuck = eqx.tree_at(lambda network: network.biases[-1], actor, actor.biases[-1] + 40)
    gradient, held = slope(stuck, critics, rows, jnp.asarray(0.01))
    assert held["held_at_bound"] == 1
    assert not any((np.asarray(leaf) != 0).any() for leaf in jax.tree.leaves(gradient))
