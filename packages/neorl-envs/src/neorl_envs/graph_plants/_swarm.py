"""A swarm of robots in formation, coupled within radio range, with a few leaders."""

import functools
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_core import Channel, Policy, Spec, Step
from neorl_envs.blocks import autoregressive, runge_kutta
from neorl_envs.graph_plants._parts import (
    NetworkPolicy,
    Pairs,
    both_ways,
    endless_step,
    grid_pairs,
    link_channels,
    noise_scale,
    random_factors,
    received_command,
    require_sizes,
)
from neorl_envs.plants._protocol import PlantDefaults

SPACING = 2.0  # m
RADIUS = 3.6  # m
ARENA, SPEED, FORCE = 20.0, 5.0, 1.0  # m, m/s, m/s^2
PERIOD, SUBSTEPS = 0.2, 4
LEADERS = 8
"""One robot in this many is a leader, which measures its displacement."""


class Air(NamedTuple):
    """The parameters of one episode, for robots of unit mass.

    Attributes:
        spring: Stiffness of a link, 1/s^2.
        damper: Damping of a link, 1/s.
        drag: Drag of the air, 1/s.
        wind_sd: Standard deviation of the wind force on each robot, m/s^2.
        wind_memory: Time constant of the wind, s.
    """

    spring: Float[Array, ""]
    damper: Float[Array, ""]
    drag: Float[Array, ""]
    wind_sd: Float[Array, ""]
    wind_memory: Float[Array, ""]


class Motion(NamedTuple):
    """The quantities that change within a period.

    Attributes:
        place: Displacement of every robot from its place in the formation, m, shape
            ``(robot, 2)``.
        speed: Velocity of every robot, m/s, shape ``(robot, 2)``.
    """

    place: Float[Array, "robot 2"]
    speed: Float[Array, "robot 2"]


class SwarmState(NamedTuple):
    """The swarm between two periods.

    Attributes:
        motion: Displacements and velocities.
        wind: Wind force, m/s^2.
        command: Last requested thrust, m/s^2.
        time: Number of periods so far.
    """

    motion: Motion
    wind: Float[Array, "robot 2"]
    command: Float[Array, "robot 2"]
    time: Int[Array, ""]


class Formation(NamedTuple):
    """Additional information of a period.

    Attributes:
        off: Root mean square of the displacements, m.
        links: Number of links, counting each pair once.
    """

    off: Float[Array, ""]
    links: Float[Array, ""]


class RobotSwarm(eqx.Module, PlantDefaults):
    """Double integrators in a grid formation, coupled while they are within radio range.

        ``e_i' = v_i``
        ``v_i' = a_i + w_i - c v_i + sum_j (k (e_j - e_i) + d (v_j - v_i))``

    ``e`` is the displacement of a robot from its place in the formation, so two robots at the right
    distance exert no force on each other. The sum is over the neighbours in the formation (2 m
    apart) that are within 3.6 m at the start of the period. A link is lost when robots move farther
    apart, and restored when they return. The action ``a`` is the thrust, limited to 1 m/s^2 in each
    direction; ``w`` is gusty wind. The equations are integrated by the Runge-Kutta method with four
    steps of 50 ms. All states are bounded: a robot stops at a fence 20 m from its place, and no
    robot is faster than 5 m/s.

    One robot in eight, a leader, measures its displacement; the others measure only the stretch of
    their links. Reward: minus the mean square of the displacements in m^2, minus a hundredth of
    that of the thrust. Channels: ``robot3.stretch_x``, the sum of ``e_j - e_i`` over its links;
    ``robot3.speed_x``; ``robot0.off_x`` of a leader; ``link3-4.there``.

    Attributes:
        rows: Rows of the formation; static.
        columns: Robots per row; static.
        horizon: Periods after which an episode is truncated; static.

    Source: Olfati-Saber, Flocking for multi-agent dynamic systems: algorithms and theory, IEEE
    Transactions on Automatic Control 51 (2006), for double integrators with position and speed
    consensus over links of limited range. Numbers are our own choice.
    """

    rows: int = eqx.field(static=True, default=4)
    columns: int = eqx.field(static=True, default=4)
    horizon: int = eqx.field(static=True, default=100)

    name: ClassVar[str] = "RobotSwarm-v0"
    reward_unit: ClassVar[str] = "m2"
    reference: ClassVar[str] = "consensus"
    glossary: ClassVar[str] = (
        "A return is minus the mean square of the displacements in m2, summed over the steps."
    )
    channel_descriptions: ClassVar[str] = (
        "Measured: the stretch of every robot's links, its speed, and the displacement of every "
        "leader. Manipulated: the thrust of every robot in two directions."
    )

    @property
    def spec(self) -> Spec:
        """Specification: channels of the robots, then of the links."""
        return _spec(self)

    @property
    def n_nodes(self) -> int:
        """Number of robots."""
        return self.rows * self.columns

    def tunings(self) -> dict[str, Policy]:
        """A controller of the leaders only, and consensus of all robots with their neighbours."""
        return {"leaders alone": Consensus(self, 0.0, 0.0), self.reference: Consensus(self)}

    def default_params(self, preset: str = "plant") -> Air:
        """The declared parameters; ``"clean"`` has no wind."""
        numbers = (0.5, 0.2, 0.2, 0.1 * noise_scale(preset), 5.0)
        return Air(*(jnp.float32(number) for number in numbers))

    def sample_params(
        self, key: PRNGKeyArray, *, preset: str = "plant", spread: float = 0.15
    ) -> Air:
        """Samples spring, damper and drag, each within ``1 +- spread`` of the declared value."""
        params = self.default_params(preset)
        factor = random_factors(key, (3,), spread)
        return params._replace(
            spring=params.spring * factor[0],
            damper=params.damper * factor[1],
            drag=params.drag * factor[2],
        )

    def sample_noise(self, params: Air, key: PRNGKeyArray) -> Float[Array, "robot 2"]:
        """Samples the random numbers of the wind, standard normal."""
        return jax.random.normal(key, (self.n_nodes, 2))

    def reset(self, params: Air, key: PRNGKeyArray) -> tuple[SwarmState, Float[Array, " obs"]]:
        """Starts at rest; the formation is displaced by up to 4 m, each robot by 0.5 m more."""
        keys = jax.random.split(key)
        whole = jax.random.uniform(keys[0], (1, 2), minval=-4.0, maxval=4.0)
        each = jax.random.uniform(keys[1], (self.n_nodes, 2), minval=-0.5, maxval=0.5)
        return self.begin(Motion(whole + each, jnp.zeros((self.n_nodes, 2), jnp.float32)))

    def begin(self, motion: Motion) -> tuple[SwarmState, Float[Array, " obs"]]:
        """Starts an episode with given displacements and velocities, without wind."""
        zero = jnp.zeros((self.n_nodes, 2), jnp.float32)
        state = SwarmState(motion, zero, zero, jnp.zeros((), jnp.int32))
        return state, self._observe(state)

    def step(
        self, params: Air, state: SwarmState, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[SwarmState, Step]:
        """Simulates one period; see :meth:`step_with_noise`."""
        return self.step_with_noise(params, state, action, self.sample_noise(params, key))

    def step_with_noise(
        self,
        params: Air,
        state: SwarmState,
        action: Float[Array, " act"],
        noise: Float[Array, "robot 2"],
    ) -> tuple[SwarmState, Step]:
        """Simulates one period with the given result of :meth:`sample_noise`; deterministic.

        The action is the thrust of every robot in x and y, shape ``(2 robot,)``; a ``ValueError``
        is raised for another shape.
        """
        command = received_command(self.name, action, state.command.reshape(-1), -FORCE, FORCE)
        command = command.reshape(-1, 2)
        there = self.near(state.motion.place)
        motion = runge_kutta(
            self.rates, state.motion, params, command + state.wind, there,
            width=PERIOD, substeps=SUBSTEPS,
        )  # fmt: skip
        stopped = jnp.abs(motion.place) >= ARENA
        motion = Motion(
            jnp.clip(motion.place, -ARENA, ARENA),
            jnp.where(stopped, 0, jnp.clip(motion.speed, -SPEED, SPEED)),
        )
        wind = autoregressive(
            state.wind, noise, sd=params.wind_sd, memory=params.wind_memory, dt=PERIOD
        )
        new = SwarmState(motion, jnp.clip(wind, -FORCE, FORCE), command, state.time + 1)
        square = jnp.mean(jnp.sum(motion.place**2, axis=1))
        thrust = jnp.mean(jnp.sum(command**2, axis=1))
        links = jnp.sum(self.near(motion.place)) / 2
        return new, endless_step(
            self._observe(new), -square - thrust / 100, command.reshape(-1),
            Formation(jnp.sqrt(square), links), time=new.time, horizon=self.horizon,
        )  # fmt: skip

    def near(self, place: Float[Array, "robot 2"]) -> Bool[Array, " directed"]:
        """Which neighbours are within radio range, in both directions."""
        senders, receivers = _links(self)
        stretch = (
            _target_positions(self)[senders]
            - _target_positions(self)[receivers]
            + place[senders]
            - place[receivers]
        )
        return jnp.sum(stretch**2, axis=1) < RADIUS**2

    def rates(
        self,
        motion: Motion,
        params: Air,
        force: Float[Array, "robot 2"],
        there: Bool[Array, " directed"],
    ) -> Motion:
        """Time derivatives of displacements and velocities."""
        senders, receivers = _links(self)
        pull = params.spring * motion.place + params.damper * motion.speed
        net_pull = jnp.where(there[:, None], pull[senders] - pull[receivers], 0)
        inner = jax.ops.segment_sum(net_pull, receivers, self.n_nodes)
        return Motion(motion.speed, force - params.drag * motion.speed + inner)

    def _observe(self, state: SwarmState) -> Float[Array, " obs"]:
        place, speed = state.motion
        there, (senders, receivers) = self.near(place), _links(self)
        stretch = jnp.where(there[:, None], place[senders] - place[receivers], 0)
        stretch = jax.ops.segment_sum(stretch, receivers, self.n_nodes)
        robots = jnp.concatenate([stretch, speed], axis=1).reshape(-1)
        off = place[::LEADERS].reshape(-1)
        return jnp.concatenate([robots, off, there.astype(place.dtype)])


class Consensus(NetworkPolicy):
    """Consensus control on the links; leaders also act on their own displacement.

    ``a_i = p s_i - q v_i - (leaders: l e_i)``, where ``s`` is the stretch of the links of a robot.

    Attributes:
        stretch: ``p``, 1/s^2; static.
        braking: ``q``, 1/s; static.
        leading: ``l``, 1/s^2; static.

    Source: Olfati-Saber (2006), algorithm 2, with linear action instead of its potentials.
    """

    stretch: float = eqx.field(static=True, default=1.0)
    braking: float = eqx.field(static=True, default=0.3)
    leading: float = eqx.field(static=True, default=2.0)

    def __call__(
        self, carry: tuple[()], obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[tuple[()], Float[Array, " act"]]:
        """The thrust of every robot; the key is ignored."""
        count = self.plant.n_nodes
        robots = obs[: 4 * count].reshape(count, 4)
        thrust = self.stretch * robots[:, :2] - self.braking * robots[:, 2:]
        n_leaders = len(range(0, count, LEADERS))
        off = obs[4 * count : 4 * count + 2 * n_leaders].reshape(-1, 2)
        thrust = thrust.at[::LEADERS].add(-self.leading * off)
        return carry, jnp.clip(thrust, -FORCE, FORCE).reshape(-1)


def robot_swarm(rows: int = 4, columns: int = 4, *, horizon: int = 100) -> RobotSwarm:
    """Creates a swarm in a grid formation.

    Args:
        rows: Rows of the formation.
        columns: Robots per row; there must be at least two robots.
        horizon: Number of periods in an episode.

    Raises:
        InputError: If an argument is not an integer or is too small.

    Example:
        >>> robot_swarm(25, 40).n_nodes
        1000
    """
    require_sizes(1, rows=rows, horizon=horizon)
    require_sizes(2, columns=columns)
    return RobotSwarm(rows, columns, horizon)


@functools.cache
def _pairs(plant: RobotSwarm) -> Pairs:
    return grid_pairs(plant.rows, plant.columns)


def _links(plant: RobotSwarm) -> tuple[np.ndarray, np.ndarray]:
    return both_ways(_pairs(plant))


@functools.cache
def _target_positions(plant: RobotSwarm) -> np.ndarray:
    """The places of the formation, m."""
    row, column = np.divmod(np.arange(plant.n_nodes), plant.columns)
    return (SPACING * np.stack([column, row], axis=1)).astype(np.float32)


@functools.cache
def _spec(plant: RobotSwarm) -> Spec:
    most = 4 * (RADIUS + SPACING)  # a robot has at most four links
    axes, robots = ("x", "y"), range(plant.n_nodes)
    obs = [
        Channel(f"robot{i}.{name}_{axis}", unit, -end, end)
        for i in robots
        for name, unit, end in (("stretch", "m", most), ("speed", "m/s", SPEED))
        for axis in axes
    ]
    obs += [
        Channel(f"robot{i}.off_{axis}", "m", -ARENA, ARENA)
        for i in robots[::LEADERS] for axis in axes
    ]  # fmt: skip
    obs += link_channels("link", _links(plant), "there", "1", 0, 1)
    action = tuple(
        Channel(f"robot{i}.thrust_{axis}", "m/s2", -FORCE, FORCE) for i in robots for axis in axes
    )
    return Spec(tuple(obs), action, (), dt=PERIOD, horizon=plant.horizon)
