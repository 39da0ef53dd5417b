"""Frequency control of a grid of machines and loads: swing equations and DC power flow."""

import functools
import random
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_core import Channel, InputError, Policy, Spec, Step
from neorl_envs.blocks import autoregressive, runge_kutta
from neorl_envs.graph_plants._parts import (
    NetworkPolicy,
    Pairs,
    both_ways,
    endless_step,
    link_channels,
    noise_scale,
    random_factors,
    received_command,
    require_sizes,
)
from neorl_envs.plants._protocol import PlantDefaults

MOST_POWER = 0.5
MOST_LOAD = 0.4
HERTZ, FLOW = 2.0, 5.0  # ends of the measuring ranges
PERIOD, SUBSTEPS = 1.0, 20


class Grid(NamedTuple):
    """The parameters of one grid; powers are in units of the rating of one bus.

    Attributes:
        inertia: Inertia ``M`` of every bus, s/Hz.
        damping: Natural damping ``D`` of loads and machines, 1/Hz.
        susceptance: Susceptance ``b`` of every line, 1/rad.
        turbine: Time constant of the generation, s.
        load_sd: Standard deviation of the load fluctuations.
        load_memory: Time constant of the load fluctuations, s.
    """

    inertia: Float[Array, " bus"]
    damping: Float[Array, " bus"]
    susceptance: Float[Array, " line"]
    turbine: Float[Array, ""]
    load_sd: Float[Array, ""]
    load_memory: Float[Array, ""]


class Swing(NamedTuple):
    """The quantities that change within a period.

    Attributes:
        angle: Angle of every bus relative to the mean of all, rad.
        frequency: Frequency deviation of every bus, Hz.
        generation: Generation in addition to the schedule.
    """

    angle: Float[Array, " bus"]
    frequency: Float[Array, " bus"]
    generation: Float[Array, " bus"]


class SwingState(NamedTuple):
    """The grid between two periods.

    Attributes:
        swing: Angles, frequencies and generation.
        load: Load in addition to the schedule, within 0.4.
        command: Last requested generation.
        time: Number of periods so far.
    """

    swing: Swing
    load: Float[Array, " bus"]
    command: Float[Array, " bus"]
    time: Int[Array, ""]


class Balance(NamedTuple):
    """Additional information of a period.

    Attributes:
        worst: Largest frequency deviation, Hz.
        imbalance: Generation minus load of the whole grid.
    """

    worst: Float[Array, ""]
    imbalance: Float[Array, ""]


class SwingNetwork(eqx.Module, PlantDefaults):
    """Buses with one machine, load and store each; power flows between buses of different angle.

        ``theta_i' = 2 pi (f_i - mean f)``
        ``M_i f_i' = P_i - d_i - D_i f_i - sum_j b_ij (theta_i - theta_j)``
        ``P_i' = (u_i - P_i) / T``

    All quantities are deviations from the schedule. The action ``u`` is generation, -0.5 to 0.5 of
    the rating of a bus. Loads start up to 0.2 off the schedule, fluctuate (standard deviation 0.1,
    time constant one minute) and stay within 0.4. The equations are integrated by the Runge-Kutta
    method with 20 steps of 50 ms per period of 1 s. The system is linear and all its modes are
    damped, so bounded generation and loads keep all states bounded. Measuring ranges end at 2 Hz
    and 5 times the rating.

    Reward: minus a hundred times the mean square of the frequencies in Hz^2, minus the mean square
    of the generation. Channels: ``bus4.frequency``, ``bus4.load``, ``bus4.generation``;
    ``line4-7.flow`` from bus 4 to bus 7, and ``line7-4.flow`` with the opposite sign.

    Attributes:
        n_nodes: Number of buses; static.
        pairs: Lines, the smaller number first; static.
        horizon: Periods after which an episode is truncated; static.

    Sources: Kundur, Power System Stability and Control (1994), for the swing equation; Dorfler,
    Simpson-Porco and Bullo, Electrical networks and algebraic graph theory, Proceedings of the
    IEEE 106 (2018), for the network form. Numbers and topology are our own choice.
    """

    n_nodes: int = eqx.field(static=True)
    pairs: Pairs = eqx.field(static=True)
    horizon: int = eqx.field(static=True, default=120)

    name: ClassVar[str] = "SwingNetwork-v0"
    reward_unit: ClassVar[str] = "points"
    reference: ClassVar[str] = "averaging control"
    glossary: ClassVar[str] = (
        "A return is minus a hundred times the mean square of the frequencies and minus the mean "
        "square of the generation, summed over the steps."
    )
    channel_descriptions: ClassVar[str] = (
        "Measured: frequency, load and generation of every bus, and the flow over every line in "
        "both directions. Manipulated: the generation of every bus."
    )

    @property
    def spec(self) -> Spec:
        """Specification: channels of the buses, then of the lines."""
        return _spec(self)

    def tunings(self) -> dict[str, Policy]:
        """Droop control of each bus, and averaging control among neighbours."""
        return {"droop": Droop(self), self.reference: AveragingControl(self)}

    def default_params(self, preset: str = "plant") -> Grid:
        """Equal buses and lines; ``"clean"`` has constant loads."""
        one = jnp.ones(self.n_nodes, jnp.float32)
        return Grid(
            one, one, jnp.ones(len(self.pairs), jnp.float32), jnp.float32(0.5),
            jnp.float32(0.1 * noise_scale(preset)), jnp.float32(60.0),
        )  # fmt: skip

    def sample_params(
        self, key: PRNGKeyArray, *, preset: str = "plant", spread: float = 0.15
    ) -> Grid:
        """Samples inertia, damping and susceptances, each within ``1 +- spread`` of its value."""
        params = self.default_params(preset)
        varied = (params.inertia, params.damping, params.susceptance)
        keys = jax.random.split(key, 3)
        inertia, damping, susceptance = (
            value * random_factors(key, value.shape, spread)
            for value, key in zip(varied, keys, strict=True)
        )
        return params._replace(inertia=inertia, damping=damping, susceptance=susceptance)

    def sample_noise(self, params: Grid, key: PRNGKeyArray) -> Float[Array, " bus"]:
        """Samples the random numbers of the loads, standard normal."""
        return jax.random.normal(key, (self.n_nodes,))

    def reset(self, params: Grid, key: PRNGKeyArray) -> tuple[SwingState, Float[Array, " obs"]]:
        """Starts at rest, with loads up to 0.2 off the schedule."""
        return self.begin(params, jax.random.uniform(key, (self.n_nodes,), minval=-0.2, maxval=0.2))

    def begin(
        self, params: Grid, load: Float[Array, " bus"]
    ) -> tuple[SwingState, Float[Array, " obs"]]:
        """Starts an episode at rest with given loads."""
        zero = jnp.zeros(self.n_nodes, jnp.float32)
        state = SwingState(
            Swing(zero, zero, zero), jnp.clip(load, -MOST_LOAD, MOST_LOAD), zero,
            jnp.zeros((), jnp.int32),
        )  # fmt: skip
        return state, self._observe(params, state)

    def step(
        self, params: Grid, state: SwingState, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[SwingState, Step]:
        """Simulates one period; see :meth:`step_with_noise`."""
        return self.step_with_noise(params, state, action, self.sample_noise(params, key))

    def step_with_noise(
        self,
        params: Grid,
        state: SwingState,
        action: Float[Array, " act"],
        noise: Float[Array, " bus"],
    ) -> tuple[SwingState, Step]:
        """Simulates one period with the given result of :meth:`sample_noise`; deterministic.

        The action is the generation of every bus, shape ``(bus,)``; a ``ValueError`` is raised for
        another shape.
        """
        command = received_command(self.name, action, state.command, -MOST_POWER, MOST_POWER)
        swing = runge_kutta(
            self.rates, state.swing, params, command, state.load, width=PERIOD, substeps=SUBSTEPS
        )
        # The mean is zero by the equations; this removes float32 rounding errors.
        swing = swing._replace(angle=swing.angle - jnp.mean(swing.angle))
        load = autoregressive(
            state.load, noise, sd=params.load_sd, memory=params.load_memory, dt=PERIOD
        )
        load = jnp.where(params.load_sd > 0, jnp.clip(load, -MOST_LOAD, MOST_LOAD), state.load)
        new = SwingState(swing, load, command, state.time + 1)
        reward = -100 * jnp.mean(swing.frequency**2) - jnp.mean(command**2)
        worst = jnp.max(jnp.abs(swing.frequency))
        info = Balance(worst, jnp.sum(swing.generation) - jnp.sum(load))
        return new, endless_step(
            self._observe(params, new), reward, command, info, time=new.time, horizon=self.horizon
        )

    def flows(self, params: Grid, angle: Float[Array, " bus"]) -> Float[Array, " directed"]:
        """Power over every line in both directions, from sender to receiver."""
        senders, receivers = both_ways(self.pairs)
        return jnp.repeat(params.susceptance, 2) * (angle[senders] - angle[receivers])

    def rates(
        self, swing: Swing, params: Grid, command: Float[Array, " bus"], load: Float[Array, " bus"]
    ) -> Swing:
        """Time derivatives of angles, frequencies and generation."""
        senders, _ = both_ways(self.pairs)
        outflow = jax.ops.segment_sum(self.flows(params, swing.angle), senders, self.n_nodes)
        force = swing.generation - load - params.damping * swing.frequency - outflow
        return Swing(
            2 * jnp.pi * (swing.frequency - jnp.mean(swing.frequency)),
            force / params.inertia,
            (command - swing.generation) / params.turbine,
        )

    def _observe(self, params: Grid, state: SwingState) -> Float[Array, " obs"]:
        swing = state.swing
        buses = [jnp.clip(swing.frequency, -HERTZ, HERTZ), state.load, swing.generation]
        flows = jnp.clip(self.flows(params, swing.angle), -FLOW, FLOW)
        return jnp.concatenate([jnp.stack(buses, axis=1).reshape(-1), flows])


class Droop(NetworkPolicy):
    """Droop control of each bus by its own frequency: ``u = -k f``.

    Attributes:
        gain: ``k``, 1/Hz; static.
    """

    gain: float = eqx.field(static=True, default=1.0)

    def __call__(
        self, carry: tuple[()], obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[tuple[()], Float[Array, " act"]]:
        """The generation of every bus; the key is ignored."""
        frequency = obs[: 3 * self.plant.n_nodes : 3]
        return carry, jnp.clip(-self.gain * frequency, -MOST_POWER, MOST_POWER)


class AveragingControl(eqx.Module):
    """Integral action shared among neighbours by distributed averaging.

    ``q_i <- q_i - i f_i + c sum_j (q_j - q_i)`` over the lines of ``i``, and ``u_i = q_i - k f_i``.

    Attributes:
        plant: The SwingNetwork that it acts on; static.
        gain: ``k``, 1/Hz; static.
        integral: ``i``, 1/Hz per period; static.
        sharing: ``c``, below the reciprocal of the largest number of lines at a bus; static.

    Source: Simpson-Porco, Dorfler and Bullo, Synchronization and power sharing for
    droop-controlled inverters in islanded microgrids, Automatica 49 (2013).
    """

    plant: Any = eqx.field(static=True)
    gain: float = eqx.field(static=True, default=1.0)
    integral: float = eqx.field(static=True, default=0.5)
    sharing: float = eqx.field(static=True, default=0.02)

    def initial_carry(self) -> Float[Array, " bus"]:
        """A carry with all integrals at zero."""
        return jnp.zeros(self.plant.n_nodes, jnp.float32)

    def sent(
        self, carry: Float[Array, " bus"], action: Float[Array, " act"]
    ) -> Float[Array, " bus"]:
        """Returns the carry unchanged, since the integral is already limited."""
        return carry

    def __call__(
        self, carry: Float[Array, " bus"], obs: Float[Array, " obs"], key: Any = None
    ) -> tuple[Float[Array, " bus"], Float[Array, " act"]]:
        """The generation of every bus; the key is ignored."""
        frequency = obs[: 3 * self.plant.n_nodes : 3]
        senders, receivers = both_ways(self.plant.pairs)
        differences = jax.ops.segment_sum(carry[senders] - carry[receivers], receivers, len(carry))
        carry = carry - self.integral * frequency + self.sharing * differences
        carry = jnp.clip(carry, -MOST_POWER, MOST_POWER)
        return carry, jnp.clip(carry - self.gain * frequency, -MOST_POWER, MOST_POWER)


def swing_network(
    n_nodes: int = 12, *, chords: float = 0.4, seed: int = 0, horizon: int = 120
) -> SwingNetwork:
    """Creates a ring of buses with additional lines across it.

    Args:
        n_nodes: Number of buses, at least three.
        chords: Number of lines across the ring per bus, at least 0.
        seed: Seed of the choice of these lines.
        horizon: Number of periods in an episode.

    Raises:
        InputError: If an argument is not an integer or is too small, or ``chords`` is outside
            [0, 2].

    Example:
        >>> plant = swing_network(1000)
        >>> plant.n_nodes, len(plant.pairs)
        (1000, 1400)
    """
    require_sizes(3, n_nodes=n_nodes)
    require_sizes(1, horizon=horizon)
    if not 0 <= chords <= 2:
        raise InputError(f"chords must be a number of lines for each bus in [0, 2], got {chords!r}")
    ring = [(min(i, (i + 1) % n_nodes), max(i, (i + 1) % n_nodes)) for i in range(n_nodes)]
    pairs, draw = dict.fromkeys(ring), random.Random(seed)
    most = n_nodes * (n_nodes - 1) // 2
    while len(pairs) < min(n_nodes + int(chords * n_nodes), most):
        a, b = draw.sample(range(n_nodes), 2)
        pairs[min(a, b), max(a, b)] = None
    return SwingNetwork(n_nodes, tuple(sorted(pairs)), horizon)


@functools.cache
def _spec(plant: SwingNetwork) -> Spec:
    ends = {"frequency": ("Hz", HERTZ), "load": ("1", MOST_LOAD), "generation": ("1", MOST_POWER)}
    obs = [
        Channel(f"bus{i}.{name}", unit, -end, end)
        for i in range(plant.n_nodes) for name, (unit, end) in ends.items()
    ]  # fmt: skip
    obs += link_channels("line", both_ways(plant.pairs), "flow", "1", -FLOW, FLOW)
    action = tuple(
        Channel(f"bus{i}.power", "1", -MOST_POWER, MOST_POWER) for i in range(plant.n_nodes)
    )
    return Spec(tuple(obs), action, (), dt=PERIOD, horizon=plant.horizon)
