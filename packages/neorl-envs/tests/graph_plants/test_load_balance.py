"""LoadBalance beside a restatement in NumPy, cases made by hand, its options and its experts."""

import random

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neorl_core import InputError
from neorl_envs.graph_plants import diffusion_rewards, load_balance
from neorl_envs.plants import Plant, check_plant
from neorl_envs.scoring import score_episodes, scores

PLANT = load_balance(14, edge_prob=0.35, seed=7)
RESET, STEP = jax.jit(PLANT.reset), jax.jit(PLANT.step_with_noise)
CHANGING = load_balance(6, edge_prob=0.4, change=0.3, fewest=3)
CHANGING_STEP, NOISE = jax.jit(CHANGING.step_with_noise), jax.jit(CHANGING.sample_noise)
PARAMS, KEY = PLANT.default_params(), jax.random.key(0)
QUIET = PLANT.sample_noise(PARAMS, KEY)


class Restated:
    """The rules of the source in NumPy, float64, written from their description."""

    def __init__(self, n, edge_prob, seed):
        draw = random.Random(seed)
        pairs = [(i, i + 1) for i in range(n - 1)]
        pairs += [(i, j) for i in range(n) for j in range(i + 2, n) if draw.random() < edge_prob]
        self.edges = [edge for i, j in pairs for edge in ((i, j), (j, i))]
        self.n = n

    def step(self, loads, action):
        s, d = self.edges[action]
        t = 0.1 * (loads[s] - loads[d])
        loads = loads.copy()
        loads[s] -= t
        loads[d] += t
        loads = np.clip(loads, 0, 1)
        return loads, -10 * np.std(loads, ddof=1)

    def observe(self, loads):
        degree = np.bincount([s for s, _ in self.edges], minlength=self.n)
        return np.stack([loads, degree / degree.max()], axis=1).ravel()


def move(plant, edge):
    edges = list(zip(plant.senders.tolist(), plant.receivers.tolist(), strict=True))
    return np.eye(len(edges), dtype=np.float32)[edges.index(edge)]


def test_every_step_of_an_episode_is_that_of_the_source():
    """Row P02: the plant is that of the source step by step."""
    restated, rng = Restated(14, 0.35, 7), np.random.default_rng(0)
    assert restated.edges == list(zip(PLANT.senders, PLANT.receivers, strict=True))
    assert len(restated.edges) == 82  # as measured in the source with these numbers
    loads = rng.random(14)
    state, obs = PLANT.begin(PARAMS, jnp.asarray(loads, jnp.float32))
    np.testing.assert_allclose(obs, restated.observe(loads), atol=1e-6)
    for time in range(50):
        action = rng.integers(82)
        loads, reward = restated.step(loads, action)
        state, step = STEP(PARAMS, state, np.eye(82, dtype=np.float32)[action], QUIET)
        np.testing.assert_allclose(step.obs, restated.observe(loads), atol=2e-6)
        np.testing.assert_allclose(step.reward, reward, atol=1e-5)
        assert bool(step.truncated) == (time == 49)
        assert not step.terminated


def test_a_move_by_hand():
    plant = load_balance(3, edge_prob=0.0)
    state, _ = jax.jit(plant.begin)(plant.default_params(), jnp.array([1.0, 0.5, 0.0]))
    _, step = jax.jit(plant.step)(plant.default_params(), state, move(plant, (0, 1)), KEY)
    np.testing.assert_allclose(step.obs, [0.95, 0.5, 0.55, 1.0, 0.0, 0.5], atol=1e-6)
    np.testing.assert_allclose(step.reward, -10 * np.std([0.95, 0.55, 0.0], ddof=1), rtol=1e-6)
    assert step.applied.tolist() == [1.0, 0.0, 0.0, 0.0]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 40), st.integers(0, 1000))
def test_both_directions_do_the_same_unless_direction_matters(pair, seed):
    state, _ = RESET(PARAMS, jax.random.key(seed))
    edges = np.eye(82, dtype=np.float32)
    there, back = (STEP(PARAMS, state, edges[2 * pair + k], QUIET) for k in (0, 1))
    np.testing.assert_allclose(there[0].loads, back[0].loads, atol=1e-7)
    np.testing.assert_allclose(np.sum(there[0].loads), np.sum(state.loads), rtol=1e-6)


def test_where_direction_matters_load_flows_down_alone():
    """Row P02: where direction matters, load flows down alone."""
    plant = load_balance(3, edge_prob=0.0, directed=True)
    state, _ = jax.jit(plant.begin)(plant.default_params(), jnp.array([1.0, 0.5, 0.0]))
    run = jax.jit(plant.step)
    down, up = (
        run(plant.default_params(), state, move(plant, edge), KEY)[0].loads
        for edge in ((0, 1), (1, 0))
    )
    np.testing.assert_allclose(down, [0.95, 0.55, 0.0], atol=1e-6)
    np.testing.assert_allclose(up, state.loads)


@pytest.mark.parametrize("action", [np.zeros(82), np.full(82, np.nan), np.full(82, -1.0)])
def test_nothing_moves_where_nothing_is_asked_for(action):
    state, _ = RESET(PARAMS, KEY)
    after, step = STEP(PARAMS, state, jnp.asarray(action, jnp.float32), QUIET)
    np.testing.assert_array_equal(after.loads, state.loads)
    assert not step.info.moved
    assert not step.applied.any()


def test_links_come_and_go_but_the_chain_stays():
    """Row P02: the topology may change with time."""
    params = jax.jit(CHANGING.sample_params)(jax.random.key(3))
    state, obs = jax.jit(CHANGING.reset)(params, KEY)
    chain = np.asarray([j == i + 1 for i, j in CHANGING.pairs])
    seen, there = [], jax.jit(CHANGING.there)
    for i in range(20):
        noise = NOISE(params, jax.random.key(i))
        before, (state, step) = state, CHANGING_STEP(params, state, jnp.zeros(30), noise)
        anew = (np.asarray(noise.change) < 0.3) & ~chain
        drawn = np.asarray(noise.there) < np.float32(0.4)
        np.testing.assert_array_equal(state.links, np.where(anew, drawn, before.links))
        assert np.all(np.asarray(state.links)[chain])
        usable = np.asarray(there(params, state.links))
        np.testing.assert_array_equal(step.obs[18:], usable)
        seen.append(np.asarray(state.links))
    assert len(np.unique(seen, axis=0)) > 5
    assert obs.shape == step.obs.shape == (CHANGING.spec.n_obs,)


def test_a_missing_node_has_no_part_in_anything():
    params = CHANGING.topology([(0, 1), (1, 2)], n_nodes=3)
    state, obs = jax.jit(CHANGING.begin)(params, jnp.array([1.0, 0.5, 0.0, 0.9, 0.9, 0.9]))
    np.testing.assert_allclose(obs[:18].reshape(6, 3)[3:], 0)
    noise = NOISE(params, KEY)
    _, step = CHANGING_STEP(params, state, move(CHANGING, (2, 3)), noise)
    assert not step.info.moved
    np.testing.assert_allclose(step.reward, -10 * 0.5, rtol=1e-6)


def test_one_node_alone_is_balanced():
    plant = load_balance(3, change=0.0, fewest=1)
    params = plant.topology([], n_nodes=1)
    state, _ = jax.jit(plant.reset)(params, KEY)
    _, step = jax.jit(plant.step)(params, state, np.ones(6, np.float32), KEY)
    assert (float(step.reward), bool(step.info.moved)) == (0.0, False)
    assert np.isfinite(step.obs).all()


def test_another_topology_of_the_declared_size_is_the_same_program():
    state, _ = CHANGING.reset(CHANGING.default_params(), KEY)
    chex.clear_trace_counter()
    compiled = jax.jit(chex.assert_max_traces(CHANGING.step, n=1))
    for topology in (CHANGING.topology([(0, 5)]), CHANGING.topology([], n_nodes=3)):
        compiled(topology, state, jnp.zeros(30), KEY)


def test_many_worlds_at_once_are_each_alone():
    keys = jax.random.split(KEY, 8)
    params = jax.jit(jax.vmap(CHANGING.sample_params))(keys)
    states, _ = jax.jit(jax.vmap(CHANGING.reset))(params, keys)
    actions = jax.random.uniform(KEY, (8, 30))
    together = jax.jit(jax.vmap(CHANGING.step))(params, states, actions, keys)
    params, states, actions = jax.device_get((params, states, actions))
    single = jax.jit(CHANGING.step)
    for i in range(2):
        one = jax.tree.map(lambda x, i=i: x[i], (params, states, actions))
        alone = single(*one, keys[i])
        for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
            np.testing.assert_allclose(a, b[i], atol=1e-6)


def test_no_single_move_lowers_the_spread_more_than_the_greedy_one():
    greedy = PLANT.tunings()["greedy"]
    every = jax.jit(
        jax.vmap(
            lambda state, a: PLANT.step_with_noise(PARAMS, state, a, QUIET)[1].reward, (None, 0)
        )
    )
    for i in range(5):
        state, obs = RESET(PARAMS, jax.random.key(i))
        rewards = every(state, jnp.eye(82))
        chosen = int(jnp.argmax(greedy((), obs)[1]))
        assert rewards[chosen] >= rewards.max() - 1e-5


def test_chance_greed_and_diffusion_reach_what_was_measured_in_the_source():
    """Random -105.3 and greedy -61.6 were measured in the source with these numbers."""
    keys = jax.random.split(jax.random.key(1), 300)
    scored = {
        name: np.asarray(scores(PLANT, score_episodes(PLANT, policy, keys)))
        for name, policy in PLANT.tunings().items()
    }
    scored["diffusion"] = np.sum(
        jax.vmap(lambda key: diffusion_rewards(PLANT, PARAMS, key))(keys), axis=1
    )
    for name, measured in (("random", -105.3), ("greedy", -61.6)):
        error = scored[name].std(ddof=1) / np.sqrt(300)
        assert abs(scored[name].mean() - measured) < 4 * error + 1.0  # the source's own error
    assert scored["diffusion"].mean() > scored["greedy"].mean() + 10


def test_it_is_a_plant():
    assert isinstance(check_plant("LoadBalance-v0", PLANT), Plant)
    assert hash(PLANT) == hash(load_balance(14, edge_prob=0.35, seed=7))


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"n_nodes": 1}, "n_nodes must be an integer of at least 2, got 1"),
        ({"edge_prob": 1.5}, "edge_prob must be a probability"),
        ({"change": -0.1}, "change must be a probability"),
        ({"fewest": 13}, "fewest must be at most n_nodes = 12, got 13"),
        ({"horizon": 0}, "horizon must be an integer"),
    ],
)
def test_bad_numbers_are_named(numbers, words):
    with pytest.raises(InputError, match=words):
        load_balance(**numbers)


@pytest.mark.parametrize(
    ("plant", "pairs", "n_nodes", "words"),
    [
        (CHANGING, [], 7, "7 nodes does not fit LoadBalance, which declares 1 to 6"),
        (CHANGING, [(0, 6)], 6, "no link between the nodes 0 and 6"),
        (CHANGING, [(0, 4)], 3, "ends at a node beyond the 3"),
        (PLANT, [(0, 1)], 14, "no channel for missing links"),
        (PLANT, [(0, 1)], 3, "no channel for missing nodes"),
    ],
)
def test_a_topology_that_does_not_fit_is_refused(plant, pairs, n_nodes, words):
    with pytest.raises(InputError, match=words):
        plant.topology(pairs, n_nodes=n_nodes)


def test_an_action_of_another_shape_is_refused():
    state, _ = PLANT.reset(PARAMS, KEY)
    with pytest.raises(ValueError, match=r"shape \(82,\).*got \(3,\)"):
        PLANT.step(PARAMS, state, jnp.zeros(3), KEY)
    with pytest.raises(ValueError, match="give a key"):
        PLANT.tunings()["random"]((), jnp.zeros(28))
