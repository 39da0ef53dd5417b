"""A plant from declarations and a few functions: what all simulated plants share."""

import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import CostChannel, Spec, Step
from neorl_core.infrastructure import unknown_name
from neorl_envs.blocks import _actuators as act
from neorl_envs.blocks import _instruments as ins
from neorl_envs.blocks import _limits as lim
from neorl_envs.blocks._constants import (
    check_constants,
    constant_values,
    require_preset,
    sampled_constants,
)
from neorl_envs.blocks._device_checks import check_actuators, check_initial, check_instruments
from neorl_envs.blocks._relations import Relations, check_relations
from neorl_envs.blocks._terms import term_amounts
from neorl_envs.plants._protocol import PlantDefaults
from neorl_envs.plants._simulated_data import Derived, Moment, Noise, Parameters, State


class SimulatedPlant(eqx.Module, PlantDefaults):
    """Derive from it, declare the class attributes, and define the functions marked *required*.

    A step is: range and speed of the actuators, :meth:`admit`, dead time and lag, :meth:`disturb`,
    :meth:`evolve`, then limits, reward and instruments of the new state. ``Step.applied`` is the
    command after range, speed and :meth:`admit`: what the plant was really told.

    Attributes:
        horizon: Steps after which an episode is truncated.
        faults: Whether instruments can drift and freeze; rates are then set in the parameters.
        name: Name with version.
        dt: Control period, s.
        constants: Declared constants, a tree of :class:`neorl_envs.blocks.Constant`.
        relations: Orders that constants and initial state keep, such as slowest below fastest.
        initial: Plant state at the start of an episode, a tree of numbers.
        initial_spread: Half-widths of its random draw, a tree of the same structure; ``None`` for a
            fixed start. The preset ``"clean"`` has none.
        instruments: The measured channels, in the order of the observation.
        actuators: The manipulated channels, in the order of the action.
        costs: The cost channels.
        limits: What gives costs, margins, trips and bands.
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
        """Refuses a horizon that is no whole number, and declarations that do not agree."""
        if isinstance(self.horizon, bool) or not isinstance(self.horizon, int) or self.horizon < 1:
            raise ValueError(f"horizon must be a whole number of steps, got {self.horizon!r}")
        lim.check_limits(self.limits, self.costs)
        check_relations(self.relations, self.constants, initial=self.initial)
        for name in self.penalties:
            if name not in [cost.name for cost in self.costs]:
                raise unknown_name("cost among the penalties", name, [c.name for c in self.costs])

    # What a plant defines.

    def derive(self, c: Any) -> Any:
        """What is computed from the constants once instead of at every step; nothing by default.

        Where it is something, such as a matrix exponential, the other functions receive
        ``Derived(constants, derived)`` for ``c``.
        """
        return ()

    def evolve(
        self, c: Any, plant: Any, inputs: Float[Array, " act"], disturbance: Any, time: Array
    ) -> Any:
        """*Required*: the physics one control period later."""
        raise NotImplementedError

    def derivative(
        self, c: Any, plant: Any, inputs: Float[Array, " act"], disturbance: Any, time: Array
    ) -> Any:
        """Rates of change of the plant state per second, in its structure; optional.

        Where the plant is a system of differential equations, ``neorl-envs check`` integrates them
        by SciPy over ``dt`` and compares with :meth:`evolve`: a wrong period is found by nothing
        else. Plants that move in whole periods, such as an inventory, have none.
        """
        raise NotImplementedError

    def measure(self, c: Any, now: Moment) -> Float[Array, " obs"]:
        """*Required*: true values behind the instruments, in their order."""
        raise NotImplementedError

    def quantities(self, c: Any, now: Moment) -> dict[str, Array]:
        """True quantities by name: those of the limits, and what else ``info`` should have."""
        return {}

    def reward(self, c: Any, before: Moment, now: Moment, trip: Bool[Array, ""]) -> Array:
        """*Required*: reward of the step, scalar."""
        raise NotImplementedError

    def amounts(
        self, c: Any, before: Moment, now: Moment, trip: Bool[Array, ""]
    ) -> dict[str, Array]:
        """Amount of every declared term in the step, by its name; none by default.

        Together with the worth of the terms they give :meth:`reward`.
        """
        return {}

    def success(self, c: Any, now: Moment) -> Bool[Array, ""]:
        """Whether the episode has reached its aim and ends; never by default."""
        return jnp.zeros((), jnp.bool_)

    def admit(self, c: Any, plant: Any, command: Float[Array, " act"]) -> Float[Array, " act"]:
        """The command after interlocks of the plant itself; all of it by default."""
        return command

    def soft_sensors(self, c: Any, shown: Float[Array, " obs"], now: Moment) -> Array:
        """The readings with those filled in that are computed from other readings."""
        return shown

    def begin(self, c: Any, initial: Any, key: PRNGKeyArray) -> Any:
        """The plant at the start of an episode, from the drawn initial state."""
        return initial

    def begin_disturbance(self, c: Any, key: PRNGKeyArray) -> Any:
        """The disturbances at the start of an episode; none by default."""
        return ()

    def sample_process_noise(self, c: Any, key: PRNGKeyArray) -> Any:
        """Draws for one step of :meth:`disturb`; none by default."""
        return ()

    def disturb(self, c: Any, disturbance: Any, noise: Any, time: Array) -> Any:
        """The disturbances one period later; unchanged by default."""
        return disturbance

    # What every plant has from its declarations.

    @property
    def spec(self) -> Spec:
        """Channels, period and horizon."""
        return _spec(type(self), self.horizon)

    def action_rates(self) -> tuple[float, ...]:
        """Largest change of each actuator per second, in its own unit; infinite for no limit."""
        return tuple(actuator.speed for actuator in self.actuators)

    def bands(self) -> dict[str, tuple[float, float]]:
        """Soft limits of measured channels, lower and upper."""
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
            dtype: Dtype of every real leaf, and so of the simulation.

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
        """The parameters with other constants and what is derived from them."""
        return params._replace(constants=constants, derived=self.derive(constants))

    def sample_params(
        self, key: PRNGKeyArray, *, preset: str = "plant", spread: float = 0.15
    ) -> Parameters:
        """One episode's draw of the uncertain constants, uniform with relative half-width."""
        params = self.default_params(preset)
        constants = sampled_constants(self.constants, params.constants, key, spread=spread)
        return self.with_constants(params, constants)

    def check_params(self, params: Parameters) -> None:
        """Refuses parameters outside physics, such as a negative mass, by name and unit.

        Raises:
            ValueError: Naming the constant, relation, actuator, instrument or part of the initial
                state, or if what is derived is not that of the constants.
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
        """Everything that chance adds to one step."""
        for_process, for_instruments = jax.random.split(key)
        return Noise(
            self.sample_process_noise(_physics(params), for_process),
            ins.sample_instrument_noise(params.instruments, for_instruments, faults=self.faults),
        )

    def reset(self, params: Parameters, key: PRNGKeyArray) -> tuple[State, Float[Array, " obs"]]:
        """A new episode: its drawn start, and what the instruments show of it."""
        keys = jax.random.split(key, 4)
        c = _physics(params)
        plant = self.begin(c, _drawn(params, keys[0]), keys[1])
        actuators = act.actuators_at_start(self.actuators, params.instruments.sd.dtype)
        disturbance = self.begin_disturbance(c, keys[2])
        now = Moment(plant, actuators.position, disturbance, jnp.zeros((), jnp.int32))
        truth = self.measure(c, now)
        instruments = ins.instruments_at_start(self.instruments, truth, faults=self.faults)
        noise = ins.sample_instrument_noise(params.instruments, keys[3], faults=self.faults)
        instruments, obs = self._read(params, instruments, now, noise)
        return State(plant, actuators, instruments, disturbance, now.time), obs

    def step(
        self, params: Parameters, state: State, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[State, Step]:
        """One control period; see :meth:`step_with_noise`."""
        return self.step_with_noise(params, state, action, self.sample_noise(params, key))

    def step_with_noise(
        self, params: Parameters, state: State, action: Float[Array, " act"], noise: Noise
    ) -> tuple[State, Step]:
        """One control period with given draws: a deterministic function.

        Args:
            params: Parameters from :meth:`default_params` or :meth:`sample_params`.
            state: State before the step.
            action: Demands in the channels' units, shape ``(act,)``. A channel that is NaN keeps
                its last command; one outside the range is clipped, and ``Step.applied`` shows it.
            noise: Noise from :meth:`sample_noise`.

        Returns:
            The state after the step and what the plant answered.

        Raises:
            ValueError: If the action has another shape.
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
        reward = self.reward(c, before, now, trip)
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
        truth = self.measure(c, now)
        state, shown = ins.read(
            self.instruments, params.instruments, state, truth, noise, dt=self.dt
        )
        return state, ins.in_range(self.instruments, self.soft_sensors(c, shown, now))


def _physics(params: Parameters) -> Any:
    """What the plant's own functions receive as constants."""
    if isinstance(params.derived, tuple) and not params.derived:
        return params.constants
    return Derived(params.constants, params.derived)


def _drawn(params: Parameters, key: PRNGKeyArray) -> Any:
    """The initial state, uniform within its spread."""
    leaves, structure = jax.tree.flatten(params.initial)
    widths = structure.flatten_up_to(params.initial_spread)
    keys = jax.random.split(key, max(len(leaves), 1))

    def drawn(x: Array, width: Array, key: PRNGKeyArray) -> Array:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return x + width * jax.random.uniform(key, x.shape, x.dtype, -1, 1)

    return structure.unflatten(map(drawn, leaves, widths, keys))


def _number(value: Any, dtype: DTypeLike) -> Array:
    """An array of the wanted type; NumPy's whole numbers and truth values keep theirs."""
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
