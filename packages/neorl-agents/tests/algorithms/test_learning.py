"""What learners reach: the return of what they clone, and what a conservative weight does."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import BC, CQL
from neorl_agents.learning import unit_rows
from neorl_agents.networks import q_values
from neorl_agents.testing import sized, statistics_of
from neorl_core import Channel, Spec, Transition, as_arrays

HORIZON, EPISODES, DT = 32, 128, 0.1
GAIN = np.array([3.0, 2.0])
KEY = jax.random.key(0)


def returns_of(act, episodes, seed):
    """Returns and rows of a disturbed mass on a line, 2 m from where it should be, N = 1.

    Args:
        act: Function from observations, one a row, to actions in [-8, 8].
        episodes: Number of episodes.
        seed: Seed of starts and disturbances.
    """
    rng = np.random.default_rng(seed)
    x = np.stack([2 * rng.normal(size=episodes), rng.normal(size=episodes)], -1)
    rows, total = [], np.zeros(episodes)
    for _ in range(HORIZON):
        force = np.asarray(act(x), float).reshape(-1)
        reward = -(x[:, 0] ** 2) - 0.05 * force**2
        speed = x[:, 1] + DT * (force + 0.3 * rng.normal(size=episodes))
        following = np.stack([x[:, 0] + DT * x[:, 1], speed], -1)
        rows.append((x, force[:, None], reward, following))
        total += reward
        x = following
    return total, [np.stack(column, 1) for column in zip(*rows, strict=True)]


@pytest.fixture(scope="module")
def expert():
    """An expert's log with some noise in its actions, its statistics, and its returns."""
    rng = np.random.default_rng(1)

    def act(x):
        return np.clip(-x @ GAIN + 0.2 * rng.normal(size=len(x)), -8, 8)

    total, columns = returns_of(act, EPISODES, seed=2)
    obs, action, reward, following = (
        jnp.asarray(c.reshape(EPISODES * HORIZON, *c.shape[2:]), jnp.float32) for c in columns
    )
    ends = jnp.arange(EPISODES * HORIZON) % HORIZON == HORIZON - 1
    log = Transition(
        obs, action, reward, cost=jnp.zeros((len(reward), 0), jnp.float32), next_obs=following,
        terminated=jnp.zeros_like(ends), truncated=ends,
    )  # fmt: skip
    spec = Spec(
        obs=(Channel("x", "m", -10.0, 10.0), Channel("v", "m/s", -10.0, 10.0)),
        action=(Channel("u", "N", -8.0, 8.0),),
        cost=(),
        dt=DT,
        horizon=HORIZON,
    )
    return spec, log, statistics_of(log), total


def trained(learner, spec, log, statistics, updates):
    """The state after so many updates, all in one program; over a stacked learner by ``vmap``."""
    unread = {name: None for name in log._fields if name not in learner.fields}
    sampler = learner.sampler
    tables = jax.tree.map(jnp.asarray, sampler.tables(log._replace(**unread)))
    shape = (learner.batches_per_update, learner.batch_size)
    state = learner.init(spec, statistics, KEY)

    def update(arrays, state, number):
        batch = sampler.draw(tables, number, KEY, shape)
        return arrays.update(state, batch, jax.random.fold_in(KEY, number))[0], None

    def run(arrays):
        return jax.lax.scan(partial(update, arrays), state, jnp.arange(updates))[0]

    return run


CLONES = {
    "deterministic": sized(BC(), learning_rate=1e-3, hidden=(32, 32)),
    "gaussian": sized(BC(), learning_rate=1e-3, variant="gaussian", hidden=(32, 32)),
    "mixture": sized(BC(), learning_rate=1e-3, variant="mixture", n_components=3, hidden=(32, 32)),
}


@pytest.mark.parametrize(
    "variant",
    ["deterministic", *(pytest.param(name, marks=pytest.mark.nightly) for name in [*CLONES][1:])],
)
def test_cloning_an_expert_earns_what_it_earned(variant, expert):
    """Row N12: a clone of an expert earns what the expert earned, within two standard errors."""
    spec, log, statistics, behaviour = expert
    learner = CLONES[variant]
    state = jax.jit(trained(learner, spec, log, statistics, 1500))(as_arrays(learner))
    policy = learner.policy(state)
    act = jax.jit(jax.vmap(lambda obs: policy((), obs)[1]))
    cloned, _ = returns_of(lambda x: act(jnp.asarray(x, jnp.float32)), EPISODES, seed=3)
    doing_nothing, _ = returns_of(lambda x: np.zeros(len(x)), EPISODES, seed=3)
    error = np.hypot(behaviour.std(), cloned.std()) / np.sqrt(EPISODES)
    assert abs(cloned.mean() - behaviour.mean()) < 2 * error
    assert doing_nothing.mean() < behaviour.mean() - 10 * error


def test_a_conservative_weight_widens_the_gap_between_the_log_and_random_actions(expert):
    """Row N14: a conservative weight raises logged actions above random ones."""
    spec, log, statistics, _ = expert
    learner = sized(CQL(), critic_learning_rate=1e-3, n_samples=2, hidden=(16, 16), batch_size=64)
    pair = jax.tree.map(lambda x: jnp.stack([x, x]), as_arrays(learner))
    weights = jnp.asarray([0.0, 5.0])
    pair = jax.tree.unflatten(
        jax.tree.structure(pair),
        [
            weights if path[-1].name == "conservative_weight" else leaf
            for path, leaf in jax.tree_util.tree_leaves_with_path(pair)
        ],
    )
    states = jax.jit(jax.vmap(trained(learner, spec, log, statistics, 200)))(pair)
    rng, gaps = np.random.default_rng(0), []
    for i in range(2):
        state = jax.tree.map(lambda leaf, i=i: leaf[i], states)
        rows = unit_rows(state.preparation, log)
        random = jnp.asarray(rng.uniform(-1, 1, size=rows.action.shape), jnp.float32)
        logged, other = (
            q_values(state.parameters["critics"], rows.obs, a) for a in (rows.action, random)
        )
        gaps.append(float(jnp.mean(logged - other)))
    assert gaps[1] > gaps[0] + 0.5


def test_a_mixture_clones_one_of_two_controllers_and_a_gaussian_their_mean(expert):
    """Six rows of ten were driven to the one side, four to the other, whatever was seen."""
    spec, log, _, _ = expert
    rng = np.random.default_rng(3)
    more = rng.uniform(size=(len(log.reward), 1)) < 0.6
    action = np.where(more, 6.0, -4.0) + 0.2 * rng.normal(size=more.shape)
    log = log._replace(action=jnp.asarray(action, jnp.float32))
    statistics, acted = statistics_of(log), {}
    for variant in ("deterministic", "mixture"):
        learner = sized(BC(), learning_rate=3e-3, variant=variant, n_components=2, hidden=(8,))
        state = jax.jit(trained(learner, spec, log, statistics, 600))(as_arrays(learner))
        policy = learner.policy(state)
        acted[variant] = jax.vmap(lambda obs, p=policy: p((), obs)[1])(log.obs[:100])
    np.testing.assert_allclose(acted["mixture"], 6.0, atol=0.3)
    np.testing.assert_allclose(acted["deterministic"], action.mean(), atol=1.0)
