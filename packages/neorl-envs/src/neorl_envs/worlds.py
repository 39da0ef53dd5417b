"""Multi-agent worlds: the protocol, sequential and simultaneous turns, and the treasure hunt."""

import colorsys
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_core import InputError

__all__ = [
    "HuntDraws",
    "HuntState",
    "TreasureHunt",
    "Turn",
    "World",
    "simultaneous_turn",
    "strict_turn",
    "treasure_hunt",
]

# Protocol of a world with several agents.


@runtime_checkable
class World(Protocol):
    """A world in which ``n_agents`` agents with the same actions and observations act.

    A plant has a :class:`neorl_core.Spec` and one action vector per step. A world has turns: first
    the world itself changes, and then every agent observes and acts. The caller chooses the order,
    with :func:`strict_turn` or :func:`simultaneous_turn`. All functions are pure and take one
    world; use ``vmap`` for many. The index of an agent may be a traced value.

    Attributes:
        n_agents: Number of agents.
        n_obs: Length of the observation of one agent.
        n_actions: Number of actions of one agent, numbered from zero.
        horizon: Number of turns in an episode, at least one.
    """

    @property
    def n_agents(self) -> int:
        """Number of agents."""
        ...

    @property
    def n_obs(self) -> int:
        """Length of the observation of one agent."""
        ...

    @property
    def n_actions(self) -> int:
        """Number of actions of one agent."""
        ...

    @property
    def horizon(self) -> int:
        """Number of turns in an episode."""
        ...

    def reset(self, key: PRNGKeyArray) -> Any:
        """The state before the first turn."""
        ...

    def draw(self, key: PRNGKeyArray) -> Any:
        """Samples the random numbers of one turn, separately from the rules, to be recordable."""
        ...

    def begin_turn(self, state: Any, draws: Any) -> Any:
        """The state after everything except the agents has changed."""
        ...

    def observe(self, state: Any, agent: int | Int[Array, ""]) -> Float[Array, " obs"]:
        """The current observation of one agent."""
        ...

    def act(
        self, state: Any, agent: int | Int[Array, ""], action: Int[Array, ""]
    ) -> tuple[Any, Float[Array, ""]]:
        """The state after one agent's action, and that agent's reward."""
        ...

    def act_together(
        self, state: Any, actions: Int[Array, " agent"], draws: Any
    ) -> tuple[Any, Float[Array, " agent"]]:
        """The state after simultaneous actions of all agents, and their rewards."""
        ...

    def terminated(self, state: Any) -> Bool[Array, ""]:
        """Whether the episode ends before its last turn."""
        ...


# One turn of a world, with agents acting one after another or simultaneously.


Choose = Callable[[Any, Any, Float[Array, " obs"]], tuple[Any, Int[Array, ""]]]
"""``carry, action = choose(carry, agent, obs)``."""


class Turn(NamedTuple):
    """Results of one turn.

    Attributes:
        obs: Observation of each agent before it acted.
        action: Action of each agent.
        reward: Reward of each agent.
    """

    obs: Float[Array, "agent obs"]
    action: Int[Array, " agent"]
    reward: Float[Array, " agent"]


def strict_turn(
    world: World, state: Any, draws: Any, choose: Choose, carry: Any, *, unroll: bool = False
) -> tuple[Any, Any, Turn]:
    """Changes the world, then lets agents act in order; each observes the effects of earlier ones.

    Args:
        world: The world.
        state: State before the turn.
        draws: Random numbers of the turn (``world.draw``).
        choose: Function that returns the action of an agent for its observation; called once per
            agent in order.
        carry: State that ``choose`` passes on from agent to agent.
        unroll: Whether the loop over agents is unrolled, so that their indices are plain integers;
            the program is larger, and faster for few agents.

    Returns:
        State and carry after the turn, and its observations, actions and rewards.
    """

    def one(
        before: tuple[Any, Any], agent: Int[Array, ""]
    ) -> tuple[tuple[Any, Any], tuple[Array, Array, Array]]:
        state, carry = before
        obs = world.observe(state, agent)
        carry, action = choose(carry, agent, obs)
        state, reward = world.act(state, agent, action)
        return (state, carry), (obs, action, reward)

    start = (world.begin_turn(state, draws), carry)
    (state, carry), steps = _through(one, start, world.n_agents, unroll)
    return state, carry, Turn(*steps)


def simultaneous_turn(
    world: World, state: Any, draws: Any, choose: Choose, carry: Any, *, unroll: bool = False
) -> tuple[Any, Any, Turn]:
    """Changes the world, then lets all agents observe the same state and act simultaneously.

    Args:
        world: The world.
        state: State before the turn.
        draws: Random numbers of the turn (``world.draw``), which also decide between agents that
            want the same place.
        choose: Function that returns the action of an agent for its observation; called once per
            agent in order.
        carry: State that ``choose`` passes on from agent to agent.
        unroll: Whether the loop over agents is unrolled, so that their indices are plain integers;
            the program is larger, and faster for few agents.

    Returns:
        State and carry after the turn, and its observations, actions and rewards.
    """
    state = world.begin_turn(state, draws)

    def one(carry: Any, agent: Int[Array, ""]) -> tuple[Any, tuple[Array, Array]]:
        obs = world.observe(state, agent)
        carry, action = choose(carry, agent, obs)
        return carry, (obs, action)

    carry, (obs, action) = _through(one, carry, world.n_agents, unroll)
    state, reward = world.act_together(state, action, draws)
    return state, carry, Turn(obs, action, reward)


def _through(one: Callable[[Any, Any], tuple[Any, Any]], carry: Any, n: int, unroll: bool) -> Any:
    """Applies ``one`` to every agent in order and stacks the results."""
    if not unroll:
        return jax.lax.scan(one, carry, jnp.arange(n, dtype=jnp.int32))
    results = []
    for agent in range(n):
        carry, result = one(carry, agent)
        results.append(result)
    return carry, jax.tree.map(lambda *each: jnp.stack(each), *results)


# The treasure hunt: agents in a walled grid collect the items that appear there.


Version = Literal["2a24efc", "head"]
View = Literal["onehot", "rgb"]

EMPTY, WALL, GEM, FOOD, BONE, AGENT, OUTSIDE = range(7)
"""Contents of a cell; ``OUTSIDE`` cells surround the grid and cannot be entered."""

MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)], np.int32)
"""Row and column of the actions up, down, left and right."""


class HuntDraws(NamedTuple):
    """The random numbers of one turn.

    Attributes:
        spawn: Numbers in [0, 1); an empty cell gets an item if its number is below the probability.
        kind: Kind of that item, an index into the kinds of the version.
        order: Priority of each agent if several want the same cell simultaneously; the smallest
            wins.
    """

    spawn: Float[Array, "row column"]
    kind: Int[Array, "row column"]
    order: Float[Array, " agent"]


class HuntState(NamedTuple):
    """State of a hunt.

    Attributes:
        grid: Content of each cell, with a margin of ``OUTSIDE`` cells as wide as the view, int8.
        places: Row and column of each agent, in cells of the world.
        turn: Number of turns that have begun.
    """

    grid: Int[Array, "padded_row padded_column"]
    places: Int[Array, "agent 2"]
    turn: Int[Array, ""]


class TreasureHunt(eqx.Module):
    """Agents in a walled grid collect gems and, in one version, also food and bones.

    In each turn, every empty cell gets an item with probability ``spawn``; then the agents observe
    and act. An agent moves up, down, left or right. Its reward is the value of the target cell:
    that of an item, -1 for a wall, 0 for an empty cell or another agent. Unless the target holds a
    wall or an agent, it moves there, takes the item, and leaves an empty cell behind. It observes
    the square of cells around it, by channel, row and column, with two layers summed. Cells outside
    the grid look like walls.

    In strict turns (:func:`strict_turn`) these are the rules of the source. Simultaneous turns are
    not in the source: walls and all cells occupied before the turn are blocked. If several agents
    want the same cell, a random one gets it; the others stay and get no reward.

    Create one with :func:`treasure_hunt`, which checks the arguments and has the defaults of both
    versions.

    Attributes:
        version: ``"2a24efc"``: one kind of item, with walls and sand of the lower layer visible;
            ``"head"``: gems, food and bones, equally likely, with an invisible lower layer; static.
        view: ``"onehot"`` or ``"rgb"`` (three colours, clipped to 1); static.
        n_agents: Number of agents; static.
        height: Rows of the grid including walls; static.
        width: Columns of the grid including walls; static.
        radius: Number of cells that an agent sees in each direction; static.
        horizon: Number of turns in an episode; static.
        spawn: Probability of an item in an empty cell in one turn.
        values: Values of gem, food and bone.

    Source: ``sorrel/examples/treasurehunt_mp`` at commit 2a24efc and
    ``sorrel/examples/treasurehunt`` of release 1.4.0, github.com/social-ai-uoft/sorrel; its paper
    is arXiv 2506.00228.
    """

    version: Version = eqx.field(static=True)
    view: View = eqx.field(static=True)
    n_agents: int = eqx.field(static=True)
    height: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    radius: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    spawn: float | Float[Array, ""]
    values: tuple[float | Float[Array, ""], ...]

    @property
    def n_actions(self) -> int:
        """Number of actions: up, down, left, right."""
        return len(MOVES)

    @property
    def n_obs(self) -> int:
        """Length of the observation: channels times rows times columns of the view."""
        return self.appearance.shape[1] * (2 * self.radius + 1) ** 2

    @property
    def kinds(self) -> tuple[int, ...]:
        """The kinds of items that appear, as cell contents."""
        return (GEM,) if self.version == "2a24efc" else (GEM, FOOD, BONE)

    @property
    def appearance(self) -> np.ndarray:
        """Appearance of each kind of cell, both layers summed; shape ``(7, channel)``."""
        return _appearance(self.version, self.view)

    def reset(self, key: PRNGKeyArray) -> HuntState:
        """Starts an episode with walls around empty cells and agents on distinct random cells."""
        inner = (self.height - 2) * (self.width - 2)
        cells = jax.random.permutation(key, inner)[: self.n_agents].astype(jnp.int32)
        places = jnp.stack([cells // (self.width - 2), cells % (self.width - 2)], axis=1) + 1
        return self.state_with(places)

    def state_with(self, places: Int[Array, "agent 2"]) -> HuntState:
        """The state before the first turn, with agents at given places."""
        grid = np.full((self.height, self.width), WALL, np.int8)
        grid[1:-1, 1:-1] = EMPTY
        padded = jnp.asarray(np.pad(grid, self.radius, constant_values=OUTSIDE))
        row, column = (places + self.radius).T
        grid = padded.at[row, column].set(jnp.int8(AGENT))
        return HuntState(grid, jnp.asarray(places, jnp.int32), jnp.zeros((), jnp.int32))

    def draw(self, key: PRNGKeyArray) -> HuntDraws:
        """The random numbers of one turn."""
        for_cells, for_order = jax.random.split(key)
        spawn = jax.random.uniform(for_cells, (self.height, self.width))
        # A number below the probability is again uniform, so it also determines the kind.
        share = len(self.kinds) * spawn / jnp.maximum(self.spawn, np.float32(1e-30))
        kind = jnp.minimum(share, len(self.kinds) - 1).astype(jnp.int8)
        return HuntDraws(spawn, kind, jax.random.uniform(for_order, (self.n_agents,)))

    def begin_turn(self, state: HuntState, draws: HuntDraws) -> HuntState:
        """Places new items in empty cells."""
        inside = slice(self.radius, -self.radius)
        cells = state.grid[inside, inside]
        item = (GEM + draws.kind).astype(jnp.int8)
        cells = jnp.where((cells == EMPTY) & (draws.spawn < self.spawn), item, cells)
        grid = jax.lax.dynamic_update_slice(state.grid, cells, (self.radius, self.radius))
        return state._replace(grid=grid, turn=state.turn + 1)

    def observe(self, state: HuntState, agent: int | Int[Array, ""]) -> Float[Array, " obs"]:
        """The view of one agent as a vector."""
        side, place = 2 * self.radius + 1, state.places[agent]
        window = jax.lax.dynamic_slice(state.grid, (place[0], place[1]), (side, side))
        table = jnp.asarray(self.appearance, jnp.float32)
        return table[window.reshape(-1)].T.reshape(-1)

    def act(
        self, state: HuntState, agent: int | Int[Array, ""], action: Int[Array, ""]
    ) -> tuple[HuntState, Float[Array, ""]]:
        """Moves one agent unless it is blocked, and returns its reward."""
        position = state.places[agent]
        target = position + jnp.asarray(MOVES)[action]
        row, column = target[0] + self.radius, target[1] + self.radius
        cell = state.grid[row, column]
        moves = (cell != WALL) & (cell != AGENT)
        entered_cell = jnp.where(moves, jnp.int8(AGENT), cell)
        left_cell = jnp.where(moves, jnp.int8(EMPTY), jnp.int8(AGENT))
        grid = state.grid.at[row, column].set(entered_cell)
        grid = grid.at[position[0] + self.radius, position[1] + self.radius].set(left_cell)
        places = state.places.at[agent].set(jnp.where(moves, target, position))
        return state._replace(grid=grid, places=places), self._cell_reward(cell)

    def act_together(
        self, state: HuntState, actions: Int[Array, " agent"], draws: HuntDraws
    ) -> tuple[HuntState, Float[Array, " agent"]]:
        """Moves all agents simultaneously; the class explains which ones are blocked."""
        position = state.places
        target = position + jnp.asarray(MOVES)[actions]
        row, column = (target + self.radius).T
        cells = state.grid[row, column]
        free = (cells != WALL) & (cells != AGENT)
        same = jnp.all(target[:, None] == target[None, :], axis=-1) & free[:, None] & free[None, :]
        before = (draws.order[None, :], draws.order[:, None])
        number = jnp.arange(self.n_agents)
        earlier = (before[0] < before[1]) | (
            (before[0] == before[1]) & (number[None, :] < number[:, None])
        )
        loses = jnp.any(same & earlier, axis=1)
        moves = free & ~loses
        places = jnp.where(moves[:, None], target, position)
        grid = state.grid.at[tuple((position + self.radius).T)].set(jnp.int8(EMPTY))
        grid = grid.at[tuple((places + self.radius).T)].set(jnp.int8(AGENT))
        reward = jnp.where(loses, 0.0, self._cell_reward(cells))
        return state._replace(grid=grid, places=places), reward

    def terminated(self, state: HuntState) -> Bool[Array, ""]:
        """Never true, because a hunt ends only with its last turn."""
        return jnp.zeros((), jnp.bool_)

    def _cell_reward(self, cell: Int[Array, "*agent"]) -> Float[Array, "*agent"]:
        rewards = jnp.stack([jnp.asarray(x, jnp.float32) for x in (0, -1, *self.values, 0, 0)])
        return rewards[cell]


def treasure_hunt(
    version: Version = "head",
    *,
    n_agents: int | None = None,
    view: View | None = None,
    size: tuple[int, int] | None = None,
    horizon: int | None = None,
    spawn: float | None = None,
    values: tuple[float, float, float] = (10.0, 5.0, -10.0),
    radius: int = 2,
) -> TreasureHunt:
    """Creates a treasure hunt with the defaults of one of the source's versions.

    Args:
        version: ``"2a24efc"`` (10 by 10 cells, 5 agents, 50 turns, probability 0.02, one-hot view)
            or ``"head"`` (21 by 21 cells, 2 agents, 100 turns, probability 0.005, colour view).
        n_agents: Number of agents.
        view: ``"onehot"`` or ``"rgb"``, which only ``"head"`` supports.
        size: Rows and columns of the grid including walls.
        horizon: Number of turns in an episode.
        spawn: Probability of an item in an empty cell in one turn, in [0, 1].
        values: Values of gem, food and bone.
        radius: Number of cells that an agent sees in each direction.

    Returns:
        The world.

    Raises:
        InputError: Naming the argument that is out of range.

    Example:
        >>> treasure_hunt("2a24efc").n_obs, treasure_hunt("head", view="onehot").n_obs
        (125, 150)
    """
    defaults: dict[str, tuple[Any, ...]] = {
        "2a24efc": (5, "onehot", (10, 10), 50, 0.02),
        "head": (2, "rgb", (21, 21), 100, 0.005),
    }
    if version not in defaults:
        raise InputError(f"the treasure hunt has the versions 2a24efc and head, got {version!r}")
    default = defaults[version]
    arguments: tuple[Any, ...] = (n_agents, view, size, horizon, spawn)
    agents, chosen_view, (height, width), n_turns, spawn_probability = (
        old if new is None else new for new, old in zip(arguments, default, strict=True)
    )
    views = ("onehot",) if version == "2a24efc" else ("onehot", "rgb")
    if chosen_view not in views:
        raise InputError(
            f"view of version {version} must be one of {', '.join(views)}, got {chosen_view!r}"
        )
    _require(agents, (height, width), n_turns, spawn_probability, radius)
    return TreasureHunt(
        version,
        chosen_view,
        agents,
        height,
        width,
        radius,
        n_turns,
        float(spawn_probability),
        tuple(map(float, values)),
    )


def _require(
    agents: int, size: tuple[int, int], n_turns: int, spawn_probability: float, radius: int
) -> None:
    free = (size[0] - 2) * (size[1] - 2)
    limits = {
        "size": (min(size), 3, None),
        "n_agents": (agents, 1, max(free, 1)),
        "horizon": (n_turns, 1, None),
        "radius": (radius, 1, None),
    }
    for name, (value, least, most) in limits.items():
        if int(value) != value or value < least or (most is not None and value > most):
            upper = f" and at most {most}, the cells within the walls" if most is not None else ""
            raise InputError(f"{name} must be an integer of at least {least}{upper}, got {value}")
    if not 0 <= spawn_probability <= 1:
        raise InputError(f"spawn must be in [0, 1], got {spawn_probability}")


def _appearance(version: Version, view: View) -> np.ndarray:
    if version == "2a24efc":
        # EmptyEntity, Wall, Sand, Gem, agent; sand is on the lower layer, walls on both.
        names = {WALL: 1, GEM: 3, AGENT: 4}
        below = {WALL: 1, EMPTY: 2, GEM: 2, AGENT: 2}
        channels = 5
    else:
        names = {WALL: 1, GEM: 2, BONE: 3, FOOD: 4, AGENT: 5}
        below = {}
        channels = 6
    one = np.eye(channels) * (np.arange(channels) > 0)
    if view == "rgb":
        hues = np.arange(channels - 1) / (channels - 1)
        colours = [[int(255 * c) for c in colorsys.hsv_to_rgb(hue, 1.0, 1.0)] for hue in hues]
        one = np.array([[0, 0, 0], *colours], np.float64)
    appearance = np.zeros((7, one.shape[1]))
    for cell in range(OUTSIDE):
        appearance[cell] = one[names.get(cell, 0)] + one[below.get(cell, 0)]
    appearance[OUTSIDE] = one[1]
    return np.clip(appearance, 0, 255) / 255 if view == "rgb" else appearance
