"""The treasure hunt beside its source: recorded turns, views, orders, bad numbers."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import InputError, as_arrays
from neorl_envs.worlds import (
    AGENT,
    BONE,
    EMPTY,
    FOOD,
    GEM,
    WALL,
    HuntDraws,
    TreasureHunt,
    World,
    simultaneous_turn,
    strict_turn,
    treasure_hunt,
)

CASES = [("2a24efc", "onehot"), ("head", "onehot"), ("head", "rgb")]
SIDE = 5


STRICT = jax.jit(strict_turn, static_argnums=3, static_argnames="unroll")
TOGETHER = jax.jit(simultaneous_turn, static_argnums=3)


def given_actions(carry, agent, obs):
    return carry, carry[agent]


def cells(world: TreasureHunt, state):
    inside = slice(world.radius, -world.radius)
    return state.grid[inside, inside]


@pytest.mark.parametrize(("version", "view"), CASES)
def test_turns_equal_those_of_the_source(version, view) -> None:
    """Recorded from the program itself by ``tools/studies/oracles/sorrel_treasure_hunt.py``.

    Row S01: turns are those that were recorded from the source, in both versions.
    """
    record = np.load(Path(__file__).parent / f"sorrel_{version}_{view}.npz")
    turns, agents = record["action"].shape
    world = treasure_hunt(version, n_agents=agents, view=view, size=(7, 8), spawn=0.5)
    assert isinstance(world, World)
    # What appeared in a turn is the difference between two recorded grids: of the world as the last
    # agent left it, and as the first one found it.
    last = record["action"][:, -1]
    before = [np.where(record["grid"][0, 0] >= GEM, EMPTY, record["grid"][0, 0])]
    before += [after_the_last(record, t, last[t]) for t in range(turns - 1)]
    appeared = record["grid"][:, 0] != np.array(before)
    appeared[0] &= np.isin(record["grid"][0, 0], (GEM, FOOD, BONE))
    kinds = np.where(appeared, record["grid"][:, 0] - GEM, 0).astype(np.int8)

    def turn(state, given):
        appears, kind, actions = given
        draws = HuntDraws(jnp.where(appears, 0.0, 1.0), kind, jnp.zeros(agents))
        start_cells = cells(world, world.begin_turn(state, draws))
        state, _, steps = strict_turn(world, state, draws, given_actions, actions)
        return state, (start_cells, steps, state.places)

    start = world.state_with(jnp.asarray(record["start"], jnp.int32))
    given = (appeared, kinds, record["action"].astype(np.int32))
    end, (grids, steps, places) = jax.jit(lambda s, g: jax.lax.scan(turn, s, g))(
        start, jax.tree.map(jnp.asarray, given)
    )
    assert np.array_equal(grids, record["grid"][:, 0])
    assert np.array_equal(steps.reward, record["reward"])
    assert np.array_equal(places[:, -1], record["place"][:, -1])
    assert np.array_equal(cells(world, end), record["final_grid"])
    scale = 255 if view == "rgb" else 1
    assert np.array_equal(np.round(np.asarray(steps.obs) * scale), record["obs"])
    assert {-1.0, 0.0, 10.0} <= {*np.unique(record["reward"])}


def after_the_last(record, t, action):
    """The recorded grid after the last agent of a turn: it walked, or was stopped."""
    grid = record["grid"][t, -1].copy()
    old = record["place"][t - 1, -1] if t else record["start"][-1]
    grid[tuple(old)] = EMPTY
    grid[tuple(record["place"][t, -1])] = AGENT
    return grid


def view_by_numpy(grid, place, version, view):
    """The square around a place, both layers summed, walls outside: loops over cells."""
    names = ["EmptyEntity", "Wall", "Sand", "Gem", "Agent"]
    if version == "head":
        names = ["EmptyEntity", "Wall", "Gem", "Bone", "Food", "Agent"]
    colour = np.eye(len(names))
    colour[0] = 0
    if view == "rgb":  # Hues 0, 72, 144, 216 and 288 degrees.
        colour = np.array(
            [[0, 0, 0], [255, 0, 0], [203, 255, 0], [0, 255, 102], [0, 102, 255], [204, 0, 255]]
        )
    kinds = {
        EMPTY: "EmptyEntity",
        WALL: "Wall",
        GEM: "Gem",
        FOOD: "Food",
        BONE: "Bone",
        AGENT: "Agent",
    }
    seen = np.zeros((colour.shape[1], SIDE, SIDE))
    for i in range(SIDE):
        for j in range(SIDE):
            row, column = place[0] + i - 2, place[1] + j - 2
            if not (0 <= row < grid.shape[0] and 0 <= column < grid.shape[1]):
                seen[:, i, j] = colour[1]
                continue
            upper = kinds[int(grid[row, column])]
            below = "EmptyEntity"
            if version == "2a24efc":
                below = "Wall" if upper == "Wall" else "Sand"
            seen[:, i, j] = colour[names.index(upper)] + colour[names.index(below)]
    return (np.clip(seen, 0, 255) / 255 if view == "rgb" else seen).reshape(-1)


@pytest.mark.parametrize(("version", "view"), CASES)
def test_views_equal_those_of_numpy_on_a_thousand_worlds(version, view) -> None:
    """Row S02: views are those of NumPy on a thousand random worlds."""
    world = treasure_hunt(version, n_agents=4, view=view, size=(8, 9), spawn=0.4)

    @jax.jit
    def worlds(keys):
        def one(key):
            for_reset, for_draw = jax.random.split(key)
            state = world.begin_turn(world.reset(for_reset), world.draw(for_draw))
            return cells(world, state), state.places[2], world.observe(state, 2)

        return jax.vmap(one)(keys)

    grids, places, seen = map(np.asarray, worlds(jax.random.split(jax.random.key(0), 1000)))
    for grid, place, obs in zip(grids, places, seen, strict=True):
        expected = view_by_numpy(grid, place, version, view)
        np.testing.assert_allclose(obs, expected, atol=1e-6)
    kinds = np.stack([(grids == GEM + kind).mean() for kind in range(len(world.kinds))])
    free = (8 - 2) * (9 - 2) - 4
    np.testing.assert_allclose(kinds * 72 / free, 0.4 / len(world.kinds), atol=0.012)


def race(world, places, gem):
    state = world.state_with(jnp.asarray(places, jnp.int32))
    at = tuple(np.array(gem) + world.radius)
    return state._replace(grid=state.grid.at[at].set(jnp.int8(GEM)))


def test_of_two_agents_that_race_the_first_in_order_gets_the_gem() -> None:
    """The second one is stopped by the first, for which it earns nothing.

    Row S03: of two agents that race for a gem the first in order gets it.
    """
    world = as_arrays(treasure_hunt("2a24efc", n_agents=2, spawn=0.0))
    draws = world.draw(jax.random.key(0))
    for places, actions in (([(5, 4), (5, 6)], [3, 2]), ([(5, 6), (5, 4)], [2, 3])):
        start = race(world, places, (5, 5))
        for unroll in (False, True):
            state, _, turn = STRICT(
                world, start, draws, given_actions, jnp.array(actions), unroll=unroll
            )
            assert turn.reward.tolist() == [10.0, 0.0]
            assert state.places.tolist() == [[5, 5], list(places[1])]
        order = jnp.array([0.7, 0.2])
        state, _, turn = TOGETHER(
            world, start, draws._replace(order=order), given_actions, jnp.array(actions)
        )
        assert turn.reward.tolist() == [0.0, 10.0]
        assert state.places.tolist() == [list(places[0]), [5, 5]]


def test_at_one_moment_agents_do_not_swap_or_follow() -> None:
    """A cell that an agent held before the turn blocks; equal priorities go by number."""
    world = as_arrays(treasure_hunt("2a24efc", n_agents=3, spawn=0.0))
    draws = world.draw(jax.random.key(0))._replace(order=jnp.zeros(3))
    state = world.state_with(jnp.array([(3, 3), (3, 4), (5, 4)]))
    state, _, turn = TOGETHER(world, state, draws, given_actions, jnp.array([3, 1, 0]))
    assert state.places.tolist() == [[3, 3], [4, 4], [5, 4]]
    assert turn.reward.tolist() == [0.0, 0.0, 0.0]
    assert int(jnp.sum(state.grid == AGENT)) == 3


def test_a_key_gives_one_episode_and_many_worlds_are_a_vmap() -> None:
    world = treasure_hunt("head", n_agents=3, size=(9, 9), spawn=0.2)

    def episode(key):
        def turn(state, turn_key):
            for_world, for_actions = jax.random.split(turn_key)
            actions = jax.random.randint(for_actions, (3,), 0, 4)
            state, _, steps = strict_turn(
                world, state, world.draw(for_world), given_actions, actions
            )
            return state, steps

        return jax.lax.scan(turn, world.reset(key), jax.random.split(key, 20))

    keys = jax.random.split(jax.random.key(3), 4)
    together = jax.jit(jax.vmap(episode))(keys)
    alone = jax.jit(episode)
    for i in (0, 3):
        for a, b in zip(jax.tree.leaves(alone(keys[i])), jax.tree.leaves(together), strict=True):
            assert np.array_equal(a, b[i])
    state, _ = together
    assert np.array_equal(jnp.sum(state.grid == AGENT, axis=(1, 2)), [3] * 4)
    assert not jnp.any(world.terminated(state))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"version": "1.4"}, "versions 2a24efc and head, got '1.4'"),
        ({"version": "2a24efc", "view": "rgb"}, "one of onehot, got 'rgb'"),
        ({"n_agents": 362}, "at most 361, the cells within the walls, got 362"),
        ({"n_agents": 0}, "n_agents must be an integer of at least 1"),
        ({"horizon": 0}, "horizon must be an integer of at least 1"),
        ({"size": (2, 9)}, "size must be an integer of at least 3"),
        ({"spawn": 1.5}, "spawn must be in [0, 1], got 1.5"),
    ],
)
def test_bad_numbers_are_named(wrong, words) -> None:
    with pytest.raises(InputError) as error:
        treasure_hunt(**wrong)
    assert words in str(error.value)
