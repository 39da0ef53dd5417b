"""The learner of the treasure hunt beside its source, on copied weights and recorded draws."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from neorl_agents.networks import init_quantile_network
from neorl_agents.optimisers import init_optimiser
from neorl_agents.populations import (
    IQN,
    Agent,
    Episode,
    Shape,
    draw_windows,
    empty_memory,
    episode_windows,
    first_frames,
    quantile_loss,
    quantile_targets,
    remember,
    ring_windows,
    windows_known,
)

from .source_record import RECORD, batch, draws, recorded

LEARNER = IQN(
    hidden=16,
    batch_size=8,
    capacity=64,
    learning_rate=2.5e-3,
    tau=0.1,
    semantics="2a24efc",
    n_step=3,
    discount=0.99,
)
SHAPE = LEARNER.shape(20)


def agent() -> Agent:
    online, target = recorded("start/local"), recorded("start/target")
    memory = empty_memory(SHAPE, 6)
    zero = jnp.zeros((), jnp.int32)
    return Agent(online, target, init_optimiser("iqn", online, 1.0), memory, jnp.ones(()), zero)


def test_the_default_target_is_that_which_learned() -> None:
    """One reward with the source's factor of the value; a sum of three did not beat random play."""
    default = IQN()
    assert (default.n_step, default.discount) == (1, 0.99**3)


def test_values_without_noise_equal_those_of_the_source() -> None:
    """Row S04: values on copied weights are those of the source."""
    levels = jnp.asarray(RECORD["eval_tau"])
    seen = jnp.asarray(RECORD["eval_obs"])
    quiet = recorded("start/local").without_noise()
    quantiles = jax.jit(lambda network: network(seen, levels))(quiet)
    np.testing.assert_allclose(quantiles, RECORD["eval_q"], atol=1e-5)
    values = jax.jit(lambda network: LEARNER.values(network, seen[0], levels[0]))(quiet)
    np.testing.assert_allclose(values, RECORD["eval_q"][0].mean(axis=0), atol=1e-5)


def test_loss_and_gradient_equal_those_of_the_source() -> None:
    """Row S04: loss and gradient are those of the source."""
    now, rows, drawn = agent(), batch(0), draws(0)
    target = jax.jit(quantile_targets)(now.network, now.target, rows, drawn)
    loss, slope = jax.jit(jax.value_and_grad(quantile_loss))(now.network, target, rows, drawn)
    np.testing.assert_allclose(loss, RECORD["0/loss"], rtol=1e-5)
    for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(recorded("0/gradient")), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4 * float(np.abs(b).max() + 1e-3))


def test_three_steps_end_at_the_parameters_of_the_source() -> None:
    """Clip, Adam and the slow target included."""
    now, learn = agent(), jax.jit(LEARNER.learn)
    for step in range(3):
        now, loss = learn(now, batch(step), draws(step))
        np.testing.assert_allclose(loss, RECORD[f"{step}/loss"], rtol=1e-4)
    for mine, end in ((now.network, "end/local"), (now.target, "end/target")):
        for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(recorded(end)), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-5)
    assert int(now.updates) == 3


def test_no_gradient_reaches_the_target_network() -> None:
    """Row S09: no gradient reaches the target network."""
    now, rows, drawn = agent(), batch(0), draws(0)

    def loss(target):
        aim = quantile_targets(now.network, target, rows, drawn)
        return quantile_loss(now.network, aim, rows, drawn)

    slopes = jax.tree.leaves(jax.jit(jax.grad(loss))(now.target))
    assert all(not np.any(slope) for slope in slopes)


@pytest.mark.parametrize("version", ["2a24efc", "head"])
def test_the_ring_is_that_of_the_source(version) -> None:
    """Rows, sizes, stale frames before an epoch, and the windows of the recorded choices."""
    shape = IQN(capacity=64, batch_size=8, n_step=3, semantics=version).shape(20)
    rng, memory = np.random.default_rng(7), empty_memory(shape, 6)
    filled = np.load(Path(__file__).parent / f"sorrel_{version}.npz")["filled"]
    keep = jax.jit(lambda memory, episode: remember(shape, memory, episode))
    for next_row, size in filled:
        turns = [(rng.integers(0, 3, 6), rng.integers(4), rng.integers(-1, 11)) for _ in range(20)]
        obs, action, reward = (np.array(column) for column in zip(*turns, strict=True))
        episode = Episode(
            jnp.asarray(obs, jnp.float32), jnp.asarray(action, jnp.int32),
            jnp.asarray(reward, jnp.float32), jnp.zeros(6), jnp.asarray(20), jnp.asarray(False),
        )  # fmt: skip
        memory = keep(memory, episode)
        assert (int(memory.next_row), int(memory.size)) == (next_row, size)
    np.testing.assert_array_equal(memory.obs, RECORD["ring_state"])
    np.testing.assert_array_equal(memory.action, RECORD["ring_action"])
    np.testing.assert_array_equal(memory.reward, RECORD["ring_reward"])
    rows = (int(memory.next_row) - 4 + np.arange(4)) % 64
    np.testing.assert_array_equal(memory.obs[rows], RECORD["current"])
    following = (int(memory.next_row) + np.arange(4)) % 64
    np.testing.assert_array_equal(first_frames(shape, memory), RECORD["ring_state"][following])
    starts = jnp.asarray(RECORD["0/rows"], jnp.int32)
    mine, theirs = ring_windows(shape, memory, starts, jnp.float32(0.99)), batch(0)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def stored(shape: Shape, lengths, seed: int = 0):
    """A memory of episodes whose observations name episode and turn, and the rewards as NumPy."""
    rng, memory = np.random.default_rng(seed), empty_memory(shape, 2)
    keep, kept = jax.jit(lambda memory, episode: remember(shape, memory, episode)), []
    for number, (length, ended) in enumerate(lengths, 1):
        turn = np.arange(shape.turns)
        reward = rng.normal(size=shape.turns).astype(np.float32)
        obs = np.stack([np.full(shape.turns, number), turn + 1], axis=1).astype(np.float32)
        episode = Episode(
            jnp.asarray(obs), jnp.asarray(turn, jnp.int32), jnp.asarray(reward),
            jnp.array([number, length + 1], jnp.float32), jnp.asarray(length, jnp.int32),
            jnp.asarray(ended),
        )  # fmt: skip
        memory = keep(memory, episode)
        kept.append((number, length, ended, reward))
    return memory, kept[-shape.slots :]


@pytest.mark.parametrize(("frames", "n_step"), [(5, 3), (1, 1), (3, 20)])
def test_windows_stay_inside_episodes_and_returns_are_those_of_n_steps(frames, n_step) -> None:
    """Every turn of every episode that is remembered, against loops over NumPy arrays.

    Row S06: no window crosses the end of an episode. Row S07: returns are those of n steps.
    """
    shape = Shape(frames, 9, 30, n_step, None)
    lengths = [(9, False), (4, True), (9, False), (9, True), (2, True)]
    memory, kept = stored(shape, lengths)
    known = jax.jit(lambda memory: windows_known(shape, memory))(memory)
    assert int(known) == sum(length for _, length, _, _ in kept)
    held = jax.device_get(memory)
    slots = {int(n): i for i, n in enumerate(held.obs[shape.frames - 1 :: shape.slot, 0])}
    turns, expected = [], []
    for number, length, ended, reward in kept:
        for t in range(length):
            steps = min(n_step, length - t)
            value = sum(0.9**k * reward[t + k] for k in range(steps))
            follows = 0.0 if ended and t + steps == length else 0.9**steps
            turns.append(slots[number] * shape.turns + t)
            expected.append((number, t, value, t + steps, follows))
    windows = jax.jit(lambda memory, turns: episode_windows(shape, memory, turns, jnp.float32(0.9)))
    actual = jax.device_get(windows(memory, np.array(turns, np.int32)))
    for i, (number, t, value, after, follows) in enumerate(expected):
        for inputs, last in ((actual.inputs[i], t), (actual.next_inputs[i], after)):
            seen = np.asarray(inputs).reshape(frames, 2)
            wanted = np.arange(last - frames + 2, last + 2)
            assert np.array_equal(seen[:, 1], np.maximum(wanted, 0))
            assert np.array_equal(seen[:, 0], np.where(wanted > 0, number, 0))
        np.testing.assert_allclose(actual.reward[i], value, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(actual.discount[i], follows, rtol=1e-5)
    last = [(int(i), int(n)) for n, i in slots.items()]
    for slot, number in last:
        _, length, ended, _ = next(one for one in kept if one[0] == number)
        row = slot * shape.slot + frames - 1 + length - 1
        assert bool(held.terminated[row]) is ended
        assert bool(held.truncated[row]) is not ended
    drawn = jax.jit(
        lambda key: draw_windows(shape, memory, key, batch=8, discount=jnp.float32(0.9))
    )(jax.random.key(1))
    pairs = {tuple(row) for row in np.asarray(drawn.inputs)[:, -2:].tolist()}
    assert len(pairs) == 8
    assert pairs <= {(float(n), t + 1.0) for n, t, *_ in expected}


def test_noise_has_its_variance_and_is_off_without_a_draw() -> None:
    """Of one layer ``x (W + S e) + b + s f`` the variance is ``x^2 S^2 + s^2``.

    Row S05: noise has its variance and is off in evaluation.
    """
    init = jax.jit(lambda key: init_quantile_network(6, 3, key, hidden=8, scale=0.3))
    layer = init(jax.random.key(0)).head
    x = jnp.asarray(np.random.default_rng(0).normal(size=(1, 8)), jnp.float32)
    noises = jax.random.normal(jax.random.key(1), (20_000, 9, 4))
    outputs = np.asarray(jax.jit(jax.vmap(lambda noise: layer(x, noise)[0]))(noises))
    variance = 0.3**2 * (1 + float(np.sum(np.square(x))))
    np.testing.assert_allclose(np.var(outputs, axis=0), variance, rtol=0.05)
    quiet = jax.jit(lambda x: layer(x)[0])(x)
    np.testing.assert_allclose(np.mean(outputs, axis=0), quiet, atol=0.03)


@pytest.mark.parametrize(("noisy", "dueling"), [(True, True), (False, True), (True, False)])
def test_first_weights_lie_in_their_ranges(noisy, dueling) -> None:
    form = {"hidden": 64, "noisy": noisy, "dueling": dueling}
    net = jax.jit(lambda key: init_quantile_network(30, 4, key, **form))(jax.random.key(0))
    bounds = {"obs_layer": 1 / 30**0.5, "level_layer": 1 / 8, "hidden_layer": (3 / 64) ** 0.5}
    bounds["hidden_layer"] = (3 / 64) ** 0.5 if noisy else 1 / 8
    for name, bound in bounds.items():
        weight = np.abs(getattr(net, name).weight)
        assert 0.97 * bound < weight.max() <= bound
    assert net.head.weight.shape == (64, 4 + dueling)
    assert net.noise_size == (65 * 64 + 65 * (4 + dueling) if noisy else 0)
    of_shape = (jax.ShapeDtypeStruct(s, jnp.float32) for s in ((2, 30), (2, 5), (net.noise_size,)))
    assert jax.eval_shape(net, *of_shape).shape == (2, 5, 4)


@pytest.mark.parametrize(
    ("learner", "turns", "words"),
    [
        (IQN(batch_size=64, capacity=63), 10, "capacity must be at least batch_size = 64, got 63"),
        (IQN(batch_size=64, capacity=100), 101, "offers 0 of them to sample from, fewer than"),
        (IQN(), 0, "give the world a limit on its episodes"),
        (IQN(), float("inf"), "give the world a limit on its episodes"),
        (IQN(prioritised=True, semantics="head"), 10, "IQN.prioritised needs semantics 'mended'"),
    ],
)
def test_bad_numbers_are_named(learner, turns, words) -> None:
    def checked() -> None:
        learner.validate()
        learner.shape(turns)

    with pytest.raises(ValueError, match=re.escape(words)):
        checked()


def test_turns_are_drawn_by_their_last_loss_and_new_ones_as_the_largest() -> None:
    """Priorities and weights from the tree's leaves in NumPy, through one update.

    Row S08: turns are drawn by their last loss, and weights undo it.
    """
    learner = IQN(
        hidden=4, frames=2, quantiles=3, batch_size=4, capacity=12, prioritised=True, priority=0.7,
        n_step=3, discount=0.99,
    )  # fmt: skip
    shape = learner.shape(5)
    agent = jax.jit(lambda key: learner.init(2, 3, 5, key))(jax.random.key(0))

    def episode(length: int) -> Episode:
        turn = jnp.arange(5)
        return Episode(
            jnp.ones((5, 2)) * turn[:, None], turn % 3, turn + 1.0, jnp.zeros(2),
            jnp.asarray(length, jnp.int32), jnp.asarray(True),
        )  # fmt: skip

    def leaves(agent: Agent) -> np.ndarray:
        assert agent.priorities is not None
        return np.asarray(agent.priorities.sums[16:26])

    keep = jax.jit(lambda agent, length: learner.with_episode(shape, agent, episode(length)))
    agent = keep(keep(agent, 5), 3)
    np.testing.assert_array_equal(leaves(agent), [1, 1, 1, 1, 1, 1, 1, 1, 0, 0])
    after, _ = jax.jit(lambda agent: learner.update(shape, agent, jax.random.key(1)))(agent)
    drawn = np.flatnonzero(leaves(after) != leaves(agent))
    assert len(drawn) in (3, 4), "of four draws in eight equal parts, at most two are one turn"

    @jax.jit
    def learned(agent: Agent, turns: Array) -> tuple[Array, Array]:
        known = learner.draws(agent.network, jax.random.split(jax.random.key(1))[1])
        rows = episode_windows(shape, agent.memory, turns, jnp.float32(0.99))
        return learner.learn_from(agent, rows, known)[1:]

    if len(drawn) == 4:
        loss, by_row = learned(agent, jnp.asarray(drawn))
        expected = (np.asarray(by_row) + 1e-6) ** 0.7
        np.testing.assert_allclose(leaves(after)[drawn], expected, rtol=1e-4)
        np.testing.assert_allclose(loss, np.mean(by_row), rtol=1e-5)
    largest = leaves(after).max()
    again = leaves(keep(after, 2))
    np.testing.assert_array_equal(again[:5], np.float32([largest, largest, 0, 0, 0]))
    np.testing.assert_array_equal(again[5:], leaves(after)[5:])
