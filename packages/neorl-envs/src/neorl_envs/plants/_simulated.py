"""Base class of all simulated plants: a plant is built from declarations and a few functions."""

import functools
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_core import CostChannel, Spec, Step
from neorl_core.infrastructure import unknown_name
from neorl_envs.blocks import _devices as act
from neorl_envs.blocks import _devices as ins
from neorl_envs.blocks import _limits as lim
from neorl_envs.blocks._constants import (
    Relations,
    check_constants,
    check_relations,
    constant_values,
    require_preset,
    sampled_constants,
)
from neorl_envs.blocks._devices import check_actuators, check_initial, check_instruments
from neorl_envs.blocks._limits import term_amounts
from neorl_envs.plants._protocol import PlantDefaults

# Data types of a simulated plant: parameters, noise, state, and arguments of its functions.


class Parameters(NamedTuple):
    """All numeric data of a plant, so that plants can be randomised under ``vmap``.

    Attributes:
        constants: Physical constants, in the plant's own structure.
        initial: State at the start of an episode, in the structure of the plant's state.
        initial_spread: Half-width of its uniform distribution, in the same structure.
        actuators: Rate limits, lags and dead times.
        instruments: Noise, dead times and faults.
        derived: Result of :meth:`SimulatedPlant.derive`. Change constants with
            :meth:`SimulatedPlant.with_constants`, which recomputes it.
    """

    constants: Any
    initial: Any
    initial_spread: Any
    actuators: act.ActuatorParameters
    instruments: ins.InstrumentParameters
    derived: Any = ()


class Derived(NamedTuple):
    """The argument ``c`` of the functions of a plant that defines :meth:`SimulatedPlant.derive`.

    Attributes:
        constants: Physical constants, in the plant's own structure.
        derived: Result of :meth:`SimulatedPlant.derive`.
    """

    constants: Any
    derived: Any


class Noise(NamedTuple):
    """All random numbers of one step.

    Attributes:
        process: Random numbers of the disturbances, in the plant's own structure; ``()`` if it has
            none.
        instruments: Random numbers of the instruments.
    """

    process: Any
    instruments: ins.InstrumentNoise


class State(NamedTuple):
    """The complete state of a plant between two steps.

    Attributes:
        plant: Physical state, in the plant's own structure.
        actuators: Commands, delays and positions.
        instruments: Delays and faults.
        disturbance: State of the disturbances; ``()`` if the plant has none.
        time: Steps since the start of the episode.
    """

    plant: Any
    actuators: act.ActuatorState
    instruments: ins.InstrumentState
    disturbance: Any
    time: Int[Array, ""]


class Moment(NamedTuple):
    """A plant at one time, as passed to its functions.

    Attributes:
        plant: Physical state.
        inputs: Positions of the actuators in the previous period, shape ``(act,)``.
        disturbance: State of the disturbances.
        time: Steps since the start of the episode.
    """

    plant: Any
    inputs: Float[Array, " act"]
    disturbance: Any
    time: Int[Array, ""]


DECLARED = ("name", "dt", "constants", "initial", "instruments", "actuators")
DEFINED = ("evolve", "measure", "reward")


class SimulatedPlant(eqx.Module, PlantDefaults):
    """Base class: declare the class attributes, and define the functions marked *required*.

    A step applies range and rate limits of the actuators, :meth:`admit`, dead time and lag,
    :meth:`disturb` and :meth:`evolve`, and then evaluates limits, reward and instruments in the new
    state. ``Step.applied`` is the command after range and rate limits and :meth:`admit`, which is
    what the plant actually received.

    Attributes:
        horizon: Steps after which an episode is truncated.
        faults: Whether instruments can drift and freeze, at rates given in the parameters.
        name: Name with version.
        dt: Control period, s.
        constants: Declared constants, a tree of :class:`neorl_envs.blocks.Constant`.
        relations: Inequalities between constants and initial states, such as slowest below fastest.
        initial: Plant state at the start of an episode, a tree of numbers.
        initial_spread: Half-widths of the random initial state, a tree of the same structure;
            ``None`` for a fixed start. The preset ``"clean"`` has a fixed start.
        instruments: The measured channels, in the order of the observation.
        actuators: The manipulated channels, in the order of the action.
        costs: The cost channels.
        limits: Limits, from which costs, margins, trips and bands follow.
        penalties: Reward subtracted for one unit of each cost in training and in ranking.
    """

    horizon: int = eqx.field(static=True, default=300)
    faults: bool = eqx.field(static=True, default=False)

    name: ClassVar[str]
    dt: ClassVar[float]
    constants: ClassVar[Any]
    relations: ClassVar[Relations] = ()
    initial: ClassVar[Any]
    initial_spread: ClassVar[Any] = None
    instruments: ClassVar[ins.Instruments]
    actuators: ClassVar[act.Actuators]
    costs: ClassVar[tuple[CostChannel, ...]] = ()
    limits: ClassVar[lim.Limits] = ()
    penalties: ClassVar[Mapping[str, float]] = {}

    def __check_init__(self) -> None:
        """Raises if the horizon is not an integer, or declarations are missing or inconsistent."""
        _check_declared(self)
        if isinstance(self.horizon, bool) or not isinstance(self.horizon, int) or self.horizon < 1:
            raise ValueError(
                f"horizon must be a positive integer (a number of steps), got {self.horizon!r}"
            )
        lim.check_limits(self.limits, self.costs)
        check_relations(self.relations, self.constants, initial=self.initial)
        for name in self.penalties:
            if name not in [cost.name for cost in self.costs]:
                raise unknown_name("cost among the penalties", name, [c.name for c in self.costs])

    # Functions that a plant defines.

    def derive(self, c: Any) -> Any:
        """Quantities computed once from the constants, not in every step; none by default.

        If a plant defines them, for example as a matrix exponential, its other functions receive
        ``Derived(constants, derived)`` as ``c``.
        """
        return ()

    def evolve(
        self, c: Any, plant: Any, inputs: Float[Array, " act"], disturbance: Any, time: Array
    ) -> Any:
        """*Required*: the physical state one control period later."""
        raise NotImplementedError

    def derivative(
        self, c: Any, plant: Any, inputs: Float[Array, " act"], disturbance: Any, time: Array
    ) -> Any:
        """Optional: time derivative of the plant state, per second, in its structure.

        If a plant defines it, ``neorl-envs check`` integrates it over ``dt`` with SciPy and
        compares the result with :meth:`evolve`; no other check detects a wrong period. Plants that
        change only in whole periods, such as an inventory, have none.
        """
        raise NotImplementedError

    def measure(self, c: Any, now: Moment) -> Float[Array, " obs"]:
        """*Required*: the true values of the measured quantities, in the order of instruments."""
        raise NotImplementedError

    def quantities(self, c: Any, now: Moment) -> dict[str, Array]:
        """True quantities by name: those that have limits, and others to be put into ``info``."""
        return {}

    def reward(self, c: Any, before: Moment, now: Moment, trip: Bool[Array, ""]) -> Array:
        """*Required*: reward of the step, scalar."""
        raise NotImplementedError

    def amounts(
        self, c: Any, before: Moment, now: Moment, trip: Bool[Array, ""]
    ) -> dict[str, Array]:
        """Amount of every declared term in the step, by name; none by default.

        The sum of the amounts, weighted with the worth of the terms, must equal :meth:`reward`.
        """
        return {}

    def success(self, c: Any, now: Moment) -> Bool[Array, ""]:
        """Whether the episode ends because its goal is reached; never by default."""
        return jnp.zeros((), jnp.bool_)

    def admit(self, c: Any, plant: Any, command: Float[Array, " act"]) -> Float[Array, " act"]:
        """The command after the plant's own interlocks; unchanged by default."""
        return command

    def soft_sensors(self, c: Any, shown: Float[Array, " obs"], now: Moment) -> Array:
        """The readings, including those that are computed from other readings."""
        return shown

    def begin(self, c: Any, initial: Any, key: PRNGKeyArray) -> Any:
        """The plant at the start of an episode, given the sampled initial state."""
        return initial

    def begin_disturbance(self, c: Any, key: PRNGKeyArray) -> Any:
        """The disturbances at the start of an episode; none by default."""
        return ()

    def sample_process_noise(self, c: Any, key: PRNGKeyArray) -> Any:
        """Random numbers for one step of :meth:`disturb`; none by default."""
        return ()

    def disturb(self, c: Any, disturbance: Any, noise: Any, time: Array) -> Any:
        """The disturbances one period later; unchanged by default."""
        return disturbance

    # Functions that follow from the declarations.

    @property
    def spec(self) -> Spec:
        """Channels, period and horizon."""
        return _spec(type(self), self.horizon)

    def action_rates(self) -> tuple[float, ...]:
        """Largest change of each actuator per second, in its own unit; infinite for no limit."""
        return tuple(actuator.speed for actuator in self.actuators)

    def bands(self) -> dict[str, tuple[float, float]]:
        """Lower and upper soft limits of measured channels."""
        return lim.bands(self.limits)

    def penalty_weights(self) -> dict[str, float]:
        """Reward subtracted for one unit of each cost, by the name of the cost."""
        return dict(self.penalties)

    def default_params(
        self, preset: str = "plant", *, dtype: DTypeLike = jnp.float32
    ) -> Parameters:
        """Parameters without randomisation.

        Args:
            preset: ``"plant"``, or ``"clean"`` without noise, delays, lags, random starts and
                disturbances.
            dtype: Dtype of every real leaf, and therefore of the simulation.

        Raises:
            ValueError: If the preset is unknown.
        """
        require_preset(preset)
        on = float(preset == "plant")
        initial = jax.tree.map(lambda x: _number(x, dtype), self.initial)
        width = self.initial if self.initial_spread is None else self.initial_spread
        on = on if self.initial_spread is not None else 0.0
        constants = constant_values(self.constants, preset, dtype=dtype)
        return Parameters(
            constants=constants,
            initial=initial,
            initial_spread=jax.tree.map(
                lambda w, x: jnp.broadcast_to(jnp.asarray(w, dtype) * on, x.shape), width, initial
            ),
            actuators=act.actuator_parameters(self.actuators, preset, dtype=dtype),
            instruments=ins.instrument_parameters(self.instruments, preset, dtype=dtype),
            derived=self.derive(constants),
        )

    def with_constants(self, params: Parameters, constants: Any) -> Parameters:
        """The parameters with new constants and the quantities derived from them."""
        return params._replace(constants=constants, derived=self.derive(constants))

    def sample_params(
        self, key: PRNGKeyArray, *, preset: str = "plant", spread: float = 0.15
    ) -> Parameters:
        """Samples the uncertain constants of one episode, uniform with relative half-width."""
        params = self.default_params(preset)
        constants = sampled_constants(self.constants, params.constants, key, spread=spread)
        return self.with_constants(params, constants)

    def check_params(self, params: Parameters) -> None:
        """Raises for physically impossible parameters, such as a negative mass.

        Raises:
            ValueError: Naming the constant (with its unit), relation, actuator, instrument or part
                of the initial state, or if the derived quantities do not belong to the constants.
        """
        check_constants(self.constants, params.constants)
        check_initial(self.initial, params.initial, params.initial_spread)
        check_relations(
            self.relations,
            self.constants,
            params.constants,
            initial=self.initial,
            start=params.initial,
        )
        check_actuators(self.actuators, params.actuators)
        check_instruments(self.instruments, params.instruments)
        for given, right in zip(
            jax.tree.leaves(params.derived),
            jax.tree.leaves(self.derive(params.constants)),
            strict=True,
        ):
            traced = isinstance(given, Tracer) or isinstance(right, Tracer)
            if not traced and not np.allclose(given, right, rtol=1e-3, atol=1e-5):
                raise ValueError(
                    "params.derived is not that of params.constants; change constants by "
                    "plant.with_constants(params, constants)"
                )

    def sample_noise(self, params: Parameters, key: PRNGKeyArray) -> Noise:
        """Samples all random numbers of one step."""
        for_process, for_instruments = jax.random.split(key)
        return Noise(
            self.sample_process_noise(_physics(params), for_process),
            ins.sample_instrument_noise(params.instruments, for_instruments, faults=self.faults),
        )

    def reset(self, params: Parameters, key: PRNGKeyArray) -> tuple[State, Float[Array, " obs"]]:
        """Starts an episode with a sampled initial state, and returns it with its readings."""
        keys = jax.random.split(key, 4)
        c = _physics(params)
        plant = self.begin(c, _draw_initial(params, keys[0]), keys[1])
        actuators = act.actuators_at_start(self.actuators, params.instruments.sd.dtype)
        disturbance = self.begin_disturbance(c, keys[2])
        now = Moment(plant, actuators.position, disturbance, jnp.zeros((), jnp.int32))
        truth = self._truth(c, now)
        instruments = ins.instruments_at_start(self.instruments, truth, faults=self.faults)
        noise = ins.sample_instrument_noise(params.instruments, keys[3], faults=self.faults)
        instruments, obs = self._read(params, instruments, now, noise)
        return State(plant, actuators, instruments, disturbance, now.time), obs

    def step(
        self, params: Parameters, state: State, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[State, Step]:
        """Simulates one control period; see :meth:`step_with_noise`."""
        return self.step_with_noise(params, state, action, self.sample_noise(params, key))

    def step_with_noise(
        self, params: Parameters, state: State, action: Float[Array, " act"], noise: Noise
    ) -> tuple[State, Step]:
        """Simulates one control period with given random numbers; deterministic.

        Args:
            params: Parameters from :meth:`default_params` or :meth:`sample_params`.
            state: State before the step.
            action: Demands in the channels' units, shape ``(act,)``. A NaN channel keeps its last
                command. A value outside the range is clipped, which ``Step.applied`` shows.
            noise: Noise from :meth:`sample_noise`.

        Returns:
            The state after the step, and the result of the step.

        Raises:
            ValueError: If the action has a wrong shape.
        """
        c, p = _physics(params), params.actuators
        command = act.limited_command(self.actuators, p, state.actuators, action, dt=self.dt)
        command = self.admit(c, state.plant, command)
        actuators = act.delivered(self.actuators, p, state.actuators, command, dt=self.dt)
        inputs = actuators.position
        before = Moment(state.plant, state.actuators.position, state.disturbance, state.time)
        disturbance = self.disturb(c, state.disturbance, noise.process, state.time)
        plant = self.evolve(c, state.plant, inputs, disturbance, state.time)
        now = Moment(plant, inputs, disturbance, state.time + 1)
        instruments, obs = self._read(params, state.instruments, now, noise.instruments)
        quantities = self.quantities(c, now)
        margin = lim.margins(self.limits, quantities)
        trip = lim.tripped(self.limits, margin)
        success = self.success(c, now) & ~trip
        terminated = success | trip
        reward = _shaped("reward", self.reward(c, before, now, trip), (), "one number")
        if self.terms:
            amounts = self.amounts(c, before, now, trip)
            quantities = {**quantities, "terms": term_amounts(self.terms, amounts, reward)}
        return State(plant, actuators, instruments, disturbance, now.time), Step(
            obs=obs,
            final_obs=obs,
            reward=reward,
            cost=lim.violation_costs(self.limits, self.costs, margin, reward),
            applied=command,
            terminated=terminated,
            truncated=(now.time >= self.horizon) & ~terminated,
            info=lim.information(success, trip, margin, quantities),
        )

    def _read(
        self, params: Parameters, state: ins.InstrumentState, now: Moment, noise: Any
    ) -> tuple[ins.InstrumentState, Float[Array, " obs"]]:
        c = _physics(params)
        truth = self._truth(c, now)
        state, shown = ins.read(
            self.instruments, params.instruments, state, truth, noise, dt=self.dt
        )
        return state, ins.in_range(self.instruments, self.soft_sensors(c, shown, now))

    def _truth(self, c: Any, now: Moment) -> Float[Array, " obs"]:
        expected = (len(self.instruments),)
        return _shaped("measure", self.measure(c, now), expected, "one number per instrument")


def _check_declared(plant: SimulatedPlant) -> None:
    kind = type(plant)
    lacks = [name for name in DECLARED if not hasattr(kind, name)]
    lacks += [name for name in DEFINED if getattr(kind, name) is getattr(SimulatedPlant, name)]
    if lacks:
        raise TypeError(f"{kind.__name__} lacks {', '.join(lacks)}; declare them in the class")
    initial, spread = (jax.tree.structure(x) for x in (plant.initial, plant.initial_spread))
    if plant.initial_spread is not None and spread != initial:
        raise ValueError(f"initial_spread must have the form of initial, {initial}, got {spread}")
    for actuator in plant.actuators:
        of = actuator.channel
        if not of.low <= actuator.start <= of.high:
            raise ValueError(
                f"start of actuator {of.name!r} must be from {of.low:g} to {of.high:g} {of.unit}, "
                f"got {actuator.start:g}"
            )


def _shaped(method: str, given: Any, shape: tuple[int, ...], what: str) -> Array:
    came = getattr(given, "shape", f"a {type(given).__name__}")
    if came != shape:
        raise ValueError(f"{method} must return {what}, an array of shape {shape}, got {came}")
    return given


def _physics(params: Parameters) -> Any:
    """The argument ``c`` of the plant's functions."""
    if isinstance(params.derived, tuple) and not params.derived:
        return params.constants
    return Derived(params.constants, params.derived)


def _draw_initial(params: Parameters, key: PRNGKeyArray) -> Any:
    """Samples the initial state uniformly within its spread."""
    leaves, structure = jax.tree.flatten(params.initial)
    widths = structure.flatten_up_to(params.initial_spread)
    keys = jax.random.split(key, max(len(leaves), 1))

    def drawn(x: Array, width: Array, key: PRNGKeyArray) -> Array:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return x + width * jax.random.uniform(key, x.shape, x.dtype, -1, 1)

    return structure.unflatten(map(drawn, leaves, widths, keys))


def _number(value: Any, dtype: DTypeLike) -> Array:
    """Converts to an array of the given dtype; NumPy integers and booleans keep theirs."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "iub":
        return jnp.asarray(value)
    return jnp.asarray(value, dtype)


@functools.cache
def _spec(plant: type[SimulatedPlant], horizon: int) -> Spec:
    return Spec(
        obs=tuple(instrument.channel for instrument in plant.instruments),
        action=tuple(actuator.channel for actuator in plant.actuators),
        cost=plant.costs,
        dt=plant.dt,
        horizon=horizon,
    )
