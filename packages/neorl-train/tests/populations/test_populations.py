"""Populations in a world: one key one run, agents apart, checkpoints, what is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.populations import IQN, init_population
from neorl_core import InputError, as_arrays
from neorl_envs.worlds import treasure_hunt
from neorl_train.populations import (
    population_checkpoints,
    random_rewards,
    run_epochs,
    train_population,
)

WORLD = treasure_hunt("2a24efc", n_agents=3, size=(6, 6), horizon=12, spawn=0.1)
LEARNER = IQN(hidden=12, frames=2, batch_size=16, capacity=60, quantiles=4, acting_quantiles=4)


def start(seed: int = 0, world=WORLD, learner=LEARNER):
    sizes = (world.n_agents, world.n_obs, world.n_actions, world.horizon)
    return init_population(learner, *sizes, jax.random.key(seed))


def run(population, epochs: int = 3, first: int = 0, learner=LEARNER, **options):
    return run_epochs(
        as_arrays(WORLD), as_arrays(learner), population, jnp.asarray(first), jax.random.key(1),
        n_epochs=epochs, **options,
    )  # fmt: skip


def equal(a, b) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def test_one_key_gives_one_run_and_one_program() -> None:
    """Row S15: one key gives the whole run again."""
    whole, happened = run(start())
    before = run_epochs._cache_size()
    again, _ = run(start())
    assert equal(whole, again)
    assert happened.updates[:, 0].tolist() == [0, 1, 2]  # 12 turns are fewer than 16.
    assert (happened.loss[0] == 0).all()
    assert (happened.loss[1:] > 0).all()
    np.testing.assert_allclose(happened.epsilon[:, 0], 0.6 * 0.9995 ** np.arange(3), rtol=1e-6)
    other, _ = run(start(3), first=1, learner=dataclasses.replace(LEARNER, learning_rate=1e-2))
    assert not equal(whole, other)
    assert run_epochs._cache_size() == before


@pytest.mark.nightly
def test_the_number_of_epochs_in_a_chunk_is_not_part_of_the_result() -> None:
    whole, happened = run(start(), 6)
    half, first = run(start())
    both, second = run(half, first=3)
    assert equal(whole, both)
    assert np.array_equal(happened.reward, np.concatenate([first.reward, second.reward]))


def test_the_update_of_one_agent_leaves_the_others_as_they_are_to_the_bit() -> None:
    """The others see another world only where they meet it: here all act at random.

    Row S10: the update of one agent leaves the others as they are, to the bit.
    """
    blind = dataclasses.replace(LEARNER, epsilon=1.0, epsilon_decay=0.0)
    # A population is given away, so the two are made apart.
    one, other = (start(learner=blind) for _ in range(2))
    other = other._replace(network=jax.tree.map(lambda x: x.at[1].multiply(1.5), other.network))
    ends = [run(population, learner=blind)[0] for population in (one, other)]
    for i, same in ((0, True), (1, False), (2, True)):
        a, b = (jax.tree.map(lambda x, i=i: x[i], end.network) for end in ends)
        assert equal(a, b) is same


@pytest.mark.nightly
def test_a_batch_of_agents_learns_what_they_learn_one_after_another() -> None:
    mapped, a = run(start())
    batched, b = run(start(), over_agents="vmap")
    np.testing.assert_allclose(a.loss, b.loss, rtol=2e-3, atol=1e-5)
    for x, y in zip(jax.tree.leaves(mapped.network), jax.tree.leaves(batched.network), strict=True):
        np.testing.assert_allclose(x, y, atol=2e-3)


@pytest.mark.nightly
def test_many_agents_in_a_loop_are_those_written_out(monkeypatch) -> None:
    """Above a number of agents their turn is a loop; the rewards are the same."""
    _, apart = run(start())
    monkeypatch.setattr("neorl_train.populations._run.UNROLLED", 0)
    run_epochs.clear_cache()
    _, looped = run(start())
    run_epochs.clear_cache()
    np.testing.assert_allclose(apart.reward, looped.reward)
    np.testing.assert_allclose(apart.loss, looped.loss, rtol=1e-4)


def test_a_training_continues_to_the_same_bits_and_refuses_another_population(tmp_path) -> None:
    options = {"seed": 2, "epochs": 6, "chunk": 3}
    whole = train_population(WORLD, LEARNER, **options)
    assert whole.epochs.reward.shape == (6, 3)
    stops = iter([False, True])
    keep = population_checkpoints(tmp_path, WORLD, LEARNER, seed=2)
    part = train_population(WORLD, LEARNER, **options, checkpoints=keep, stop=lambda: next(stops))
    assert (part.epoch, part.finished) == (3, False)
    keep = population_checkpoints(tmp_path, WORLD, LEARNER, seed=2)
    rest = train_population(WORLD, LEARNER, **options, checkpoints=keep)
    assert rest.finished
    assert equal(whole.population, rest.population)
    five = treasure_hunt("2a24efc", n_agents=5, size=(6, 6), horizon=12, spawn=0.1)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(InputError, match="its number of agents is 3, expected 5"):
        train_population(
            five, LEARNER, **options,
            checkpoints=population_checkpoints(tmp_path, five, LEARNER, seed=2),
        )  # fmt: skip
    far = treasure_hunt("2a24efc", n_agents=3, size=(6, 6), horizon=12, spawn=0.1, radius=1)
    with pytest.raises(InputError, match="its length of observations is 125, expected 45"):
        train_population(
            far, LEARNER, **options,
            checkpoints=population_checkpoints(tmp_path, far, LEARNER, seed=2),
        )  # fmt: skip
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_what_cannot_be_trained_is_refused_in_one_line() -> None:
    class Endless:
        n_agents, n_obs, n_actions, horizon = 2, 3, 4, None

    for world, learner, words in (
        (Endless(), LEARNER, "give the world a limit on its episodes"),
        (WORLD, dataclasses.replace(LEARNER, capacity=10), "capacity must be at least batch_size"),
        (WORLD, dataclasses.replace(LEARNER, capacity=17, batch_size=17), "offers 12 of them"),
    ):
        with pytest.raises(InputError) as error:
            train_population(world, learner, epochs=1)
        assert words in str(error.value)
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="epochs must be an integer of at least 1, got 0"):
        train_population(WORLD, LEARNER, epochs=0)


def test_observations_of_another_shape_are_refused_before_anything_is_compiled() -> None:
    class Wide(type(WORLD)):
        def observe(self, state, agent):
            return jnp.zeros((5, 25))

    wide = Wide(**{field.name: getattr(WORLD, field.name) for field in dataclasses.fields(WORLD)})
    before = run_epochs._cache_size()
    with pytest.raises(InputError) as error:
        train_population(wide, LEARNER, epochs=1)
    assert str(error.value) == (
        "the observation of an agent has the shape (5, 25), expected (125,) because the world's "
        "n_obs is 125; correct n_obs, or flatten the observation"
    )
    assert run_epochs._cache_size() == before


def test_at_random_agents_earn_what_the_rules_say() -> None:
    """With every free cell a gem and nobody else near, a step earns 10, or -1 at a wall."""
    world = treasure_hunt("2a24efc", n_agents=1, size=(40, 40), horizon=3, spawn=1.0)
    rewards = random_rewards(world, episodes=200)
    assert rewards.shape == (200, 1)
    assert 26 < rewards.mean() <= 30
