"""DQN against its equations in NumPy: double, duelling, weighted; its chances and schedules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import DQN
from neorl_agents.learning import Log
from neorl_agents.policies import EpsilonGreedyPolicy
from neorl_agents.sampling import Batch
from neorl_core import Channel, InputError, Spec, as_arrays
from neorl_core.statistics import range_statistics

from .rollouts_by_hand import KEY, SMALL, SPEC, perceptron, rollout, scaled

PARTS = {"double": True, "dueling": True, "priority": 0.6}


def begun(**settings):
    learner = DQN(networks=SMALL, decay_updates=100, **{**PARTS, **settings})
    state = as_arrays(learner).init(SPEC, range_statistics(SPEC), KEY)
    # Another target than the network, so that it matters which of them is asked.
    target = jax.tree.map(lambda x: 1.5 * x + 0.1, state.parameters["values"])
    return learner, state.with_targets(values=target)


def values(learner, network, state, obs):
    out = perceptron(network, scaled(state, obs))
    if not learner.dueling:
        return out
    advantage = out[..., :-1]
    return out[..., -1:] + advantage - advantage.mean(-1, keepdims=True)


@pytest.mark.parametrize(
    ("double", "dueling"),
    [
        pytest.param(True, True, id="dqn-double-dueling"),
        pytest.param(False, False, id="dqn-plain", marks=pytest.mark.nightly),
    ],
)
def test_one_update_is_its_equations(double, dueling):
    learner, state = begun(double=double, dueling=dueling)
    rows = jax.tree.map(lambda x: x.reshape(1, 12, *x.shape[2:]), rollout("choice"))
    rows = rows._replace(truncated=None)
    weight = np.linspace(0.1, 1.0, 12).astype(np.float32)
    update = jax.jit(learner.update)
    state = state.with_counters(errors=jnp.zeros(12))
    after, metrics = update(state, Batch(rows, weight=weight[None]), KEY)
    online, target = state.parameters["values"], state.targets["values"]
    slow = values(learner, target, state, rows.next_obs[0])
    chosen = (values(learner, online, state, rows.next_obs[0]) if double else slow).argmax(-1)
    following = np.take_along_axis(slow, chosen[:, None], -1)[:, 0]
    goal = rows.reward[0] + 0.99 * (1 - rows.terminated[0]) * following
    now = values(learner, online, state, rows.obs[0])
    q = np.take_along_axis(now, rows.action[0].argmax(-1)[:, None], -1)[:, 0]
    error = np.abs(q - goal)
    np.testing.assert_allclose(metrics["loss"], np.mean(weight * error**2), rtol=1e-4)
    np.testing.assert_allclose(after.counters["errors"], error, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(
        learner.priorities(after), (error + 1e-6) ** 0.6, rtol=1e-3, atol=1e-4
    )


def test_a_value_is_the_mean_return_however_rare_a_large_one_is():
    """One row in twelve earns 12: the value is 1, where absolute errors would give nearly 0."""
    learner = DQN(networks=SMALL, decay_updates=100, learning_rate=0.01)
    state = as_arrays(learner).init(SPEC, range_statistics(SPEC), KEY)
    rows = jax.tree.map(lambda x: x.reshape(1, 12, *x.shape[2:]), rollout("choice"))
    same = jax.tree.map(lambda x: jnp.broadcast_to(x[:, :1], x.shape), (rows.obs, rows.action))
    rows = rows._replace(
        obs=same[0], action=same[1], reward=jnp.zeros((1, 12)).at[0, 5].set(12.0),
        terminated=jnp.ones((1, 12), bool), truncated=None,
    )  # fmt: skip

    def step(state, _):
        return learner.update(state, rows, KEY)

    state, metrics = jax.jit(lambda begun: jax.lax.scan(step, begun, length=600))(
        state.with_counters(errors=jnp.zeros(12))
    )
    np.testing.assert_allclose(metrics["q_mean"][-1], 1.0, rtol=1e-3)


def test_the_target_becomes_the_network_every_so_many_updates():
    learner, state = begun(copy_every=2)
    rows = jax.tree.map(lambda x: x.reshape(1, 12, *x.shape[2:]), rollout("choice"))
    state, update = state.with_counters(errors=jnp.zeros(12)), jax.jit(learner.update)
    same = []
    for _ in range(4):
        state, _ = update(state, rows._replace(truncated=None), KEY)
        parts = (state.targets["values"].weights[0], state.parameters["values"].weights[0])
        same.append(bool(jnp.array_equal(*parts)))
    assert same == [False, True, False, True]


def test_chance_and_weights_follow_the_run():
    learner, state = begun(exploration=0.5, final_epsilon=0.1, importance=0.4)
    collected = []
    for updates in (0, 25, 50, 100):
        at = state.with_counters(updates=jnp.int32(updates))
        collected.append((float(learner.epsilon(at)), float(learner.weight_exponent(at))))
    np.testing.assert_allclose(
        collected, [(1, 0.4), (0.55, 0.55), (0.1, 0.7), (0.1, 1.0)], rtol=1e-6
    )


def test_it_tries_any_choice_by_chance_and_acts_by_the_best():
    learner, state = begun()
    obs = jnp.asarray([0.3, -0.2])
    best = values(learner, state.parameters["values"], state, np.asarray(obs)[None])[0].argmax()
    np.testing.assert_array_equal(learner.policy(state)((), obs)[1], 2.0 * np.eye(3)[best])
    late = state.with_counters(updates=jnp.int32(20))
    explore = learner.explore(late)
    assert isinstance(explore, EpsilonGreedyPolicy)
    draws = jax.vmap(lambda key: explore((), obs, key)[1])(jax.random.split(KEY, 6000))
    share = np.full(3, float(explore.epsilon) / 3)
    share[best] += 1 - float(explore.epsilon)
    np.testing.assert_allclose(np.mean(draws, axis=0) / 2, share, atol=0.03)
    with pytest.raises(ValueError, match="needs a key"):
        explore((), obs)


def test_a_log_and_a_plant_without_a_choice_are_refused():
    with pytest.raises(InputError, match="needs steps of its own exploration"):
        DQN().source(Log())
    one = Spec(SPEC.obs, (Channel("a", "1", 0, 1),), (), dt=1.0, horizon=5)
    with pytest.raises(
        InputError, match="chooses one of at least two action channels, but the plant has 1"
    ):
        DQN(decay_updates=0).init(one, range_statistics(one), KEY)
