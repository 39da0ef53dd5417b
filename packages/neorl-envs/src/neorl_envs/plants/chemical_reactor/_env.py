"""ChemicalReactor-v0: channels, limits, reward, controllers and operators of the plant."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Channel, CostChannel, highs, lows
from neorl_core.control import PID, ConstantPolicy
from neorl_envs.blocks import Actuator, Instrument, Limit, Term, autoregressive, runge_kutta
from neorl_envs.plants._simulated import Moment, SimulatedPlant
from neorl_envs.plants.chemical_reactor._physics import (
    DT,
    FEED_LOCK,
    HOURS,
    INITIAL,
    INITIAL_SPREAD,
    LAST_DOSE,
    LAST_RATE,
    RELATIONS,
    Balances,
    Constants,
    Supply,
    adiabatic_temperature,
    pressure,
    rates,
)
from neorl_envs.recording._behaviour import OperatorPlan

# Measured and manipulated channels, with ranges, errors and rate limits.


ACTUATORS = (
    Actuator(Channel("feed", "kg/h", 0.0, 30_000.0), start=0.0, speed=6000.0 / DT),
    Actuator(Channel("T_in_M", "K", 333.15, 373.15), start=363.15, speed=4.0 / DT, lag=30.0),
    Actuator(Channel("T_in_EK", "K", 333.15, 373.15), start=353.15, speed=4.0 / DT, lag=30.0),
)
"""Feed and the inlet temperatures of jacket and external heat exchanger."""


def _temperature(name: str) -> Channel:
    return Channel(name, "K", 293.15, 423.15)


INSTRUMENTS = (
    *(Instrument(_temperature(n), sd=0.1) for n in ("T_R", "T_S", "T_M", "T_EK", "T_AWT")),
    Instrument(Channel("m_W", "kg", 0.0, 25_000.0), relative=0.002),
    Instrument(Channel("m_A_hat", "kg", 0.0, 6000.0), relative=0.002),
    Instrument(Channel("m_P", "kg", 0.0, 25_000.0), relative=0.002, dead_time=1),
    # A totaliser adds up the counts of a flow meter, so its readings hardly scatter.
    Instrument(Channel("m_acc", "kg", 0.0, 32_000.0), relative=0.0002),
    Instrument(Channel("T_adiab_hat", "K", 293.15, 473.15)),
    Instrument(Channel("P", "bar", 0.0, 10.0), sd=0.02),
    Instrument(Channel("batch_time", "h", 0.0, 24.0)),
)
"""The observed channels with their measuring ranges, at which the instruments saturate."""

INDEX = {instrument.channel.name: i for i, instrument in enumerate(INSTRUMENTS)}
"""Index of every channel in the observation."""


# Limits, reward and success of a batch, all computed from the true state.


SETPOINT = 363.15  # K
BAND = 2.0  # K, to each side of the setpoint
ADIABATIC_LIMIT = 382.15  # K
PRESSURE_LIMIT = 3.5  # bar, soft
RELIEF_PRESSURE = 5.0  # bar, trip
TRIP_TEMPERATURE = 403.15  # K, trip
PRODUCT_TARGET = 20_680.0  # kg of polymer
POINTS_PER_KG = 1 / 206.8
STEP_PENALTY = 0.1
TRIP_PENALTY = 100.0

COSTS = (
    CostChannel("temperature", "K min", 20.0, "episode"),
    CostChannel("pressure", "bar", 0.0, "step"),
)
LIMITS = (
    Limit(
        "T_R", SETPOINT - BAND, SETPOINT + BAND, cost="temperature", factor=DT / 60, channel="T_R"
    ),
    Limit(
        "T_adiab", high=ADIABATIC_LIMIT, cost="temperature", factor=DT / 60, channel="T_adiab_hat"
    ),
    Limit("P", high=PRESSURE_LIMIT, cost="pressure", channel="P"),
    Limit("P", high=RELIEF_PRESSURE, trip=True, unit="bar"),
    Limit("T_R", high=TRIP_TEMPERATURE, trip=True, unit="K"),
)
"""``c_T = max(|T_R - 363.15 K| - 2 K, T_adiab - 382.15 K, 0) dt``, ``c_P = max(P - 3.5 bar, 0)``;
the relief valve at 5 bar and the temperature switch at 403.15 K end the batch."""

TERMS = (
    Term("polymer", "kg", POINTS_PER_KG),
    Term("batch time", "min", -STEP_PENALTY * 60 / DT),
    Term("trips", "1", -TRIP_PENALTY),
)
PENALTIES = {"temperature": 0.75, "pressure": 2.5}
"""Points per K min beyond the soft temperature limits, and per bar beyond the pressure limit."""


# The plant's controllers: three PID loops and an interlock, in four tunings.


ACTION = tuple(actuator.channel for actuator in ACTUATORS)
INTERLOCK_TEMPERATURE = 361.15  # K; below it, the feed is limited to
INTERLOCK_FEED = 5000.0  # kg/h

SETTINGS: Mapping[str, tuple[float, float]] = {
    "PID 100/1500": (100.0, 1500.0),
    "PID 106/1500": (106.0, 1500.0),
    "PID 106/3000": (106.0, 3000.0),
    "PID 108/3000": (108.0, 3000.0),
}
"""Setpoint of the adiabatic temperature in °C, and gain of the feed in kg/h per K."""

REFERENCE = "PID 106/1500"
TRACKING_TIME = 100.0  # s


def tuning(adiabatic_celsius: float, feed_gain: float, *, dt: float) -> PID:
    """The three PID loops for one pair of settings.

    The feed is controlled by the soft sensor of the adiabatic temperature (proportional, bias 8000
    kg/h), the jacket inlet by the reactor temperature (6 K/K, 600 s), and the exchanger inlet by
    the reactor temperature (12 K/K, bias 353.15 K). While the reactor is colder than 361.15 K, the
    feed is limited to 5000 kg/h, so that monomer does not accumulate. The rate limit of the jacket
    is the same in both directions, so a tracking time of two periods is safe and unwinds the
    integral before the temperature overshoots.

    ``adiabatic_celsius`` is a setpoint in °C, ``feed_gain`` is in kg/h per K, ``dt`` in seconds.
    The three outputs are in the order of the action channels.
    """
    return PID(
        kp=jnp.asarray((feed_gain, 6.0, 12.0)),
        ki=jnp.asarray((0.0, 6.0 / 600.0, 0.0)),
        kd=jnp.zeros(3),
        tau=jnp.zeros(3),
        setpoint=jnp.asarray((adiabatic_celsius + 273.15, SETPOINT, SETPOINT)),
        bias=jnp.asarray((8000.0, SETPOINT, 353.15)),
        low=jnp.asarray(lows(ACTION)),
        high=jnp.asarray(highs(ACTION)),
        dt=jnp.asarray(dt),
        override_below=jnp.asarray((INTERLOCK_TEMPERATURE,)),
        override_cap=jnp.asarray((INTERLOCK_FEED,)),
        measured=(INDEX["T_adiab_hat"], INDEX["T_R"], INDEX["T_R"]),
        override_output=(0,),
        override_measured=(INDEX["T_R"],),
        tracking_time=jnp.full(3, TRACKING_TIME),
    )


def bad_policy() -> ConstantPolicy:
    """Full feed with both inlets at 373.15 K: violates both limits and trips in most batches."""
    return ConstantPolicy(jnp.asarray(highs(ACTION)))


# Parameters of the simulated operators of the reactor, used to record a plant log.


def operator_plan() -> OperatorPlan:
    """Setpoint steps, manual holds of 5 to 30 minutes, and a binary signal on every actuator.

    At a period of 50 s, the signals of 3000 kg/h, 3 K and 3 K change sign every 8 minutes on
    average. A setpoint step of up to 2 K (adiabatic temperature) and 1 K (reactor temperature)
    occurs every 25 minutes. One actuator is held in manual every 50 minutes, and returned to
    automatic when the reactor is 4 K away from its setpoint or the adiabatic temperature is within
    1 K of its limit.
    """
    watch_low = np.full(len(INDEX), -np.inf, np.float32)
    watch_high = np.full(len(INDEX), np.inf, np.float32)
    watch_low[INDEX["T_R"]], watch_high[INDEX["T_R"]] = SETPOINT - 4.0, SETPOINT + 4.0
    watch_high[INDEX["T_adiab_hat"]] = ADIABATIC_LIMIT - 1.0
    return OperatorPlan(
        amplitude=jnp.asarray((3000.0, 3.0, 3.0)),
        dwell=jnp.asarray(10.0),
        setpoint_step=jnp.asarray((2.0, 1.0, 1.0)),
        setpoint_high=jnp.asarray((ADIABATIC_LIMIT - 1.0, SETPOINT + 1.0, SETPOINT + 1.0)),
        setpoint_group=jnp.asarray((0, 1, 1), jnp.int32),
        setpoint_every=jnp.asarray(30.0),
        hold_every=jnp.asarray(60.0),
        hold_shortest=jnp.asarray(6, jnp.int32),
        hold_longest=jnp.asarray(36, jnp.int32),
        watch_low=jnp.asarray(watch_low),
        watch_high=jnp.asarray(watch_high),
    )


STABLE_SUBSTEPS = 24


FED = 8
"""Index of the accumulated feed in the observation."""


def _last_of_recipe(fed: Array, command: Float[Array, "3"]) -> Float[Array, "3"]:
    remaining = jnp.maximum(FEED_LOCK - fed, 0)
    feed = jnp.where(remaining < LAST_DOSE, jnp.maximum(command[0], LAST_RATE), command[0])
    return command.at[0].set(jnp.minimum(feed, remaining / HOURS))


class ChemicalReactor(SimulatedPlant):
    """Semi-batch polymerisation with a jacket and an external heat exchanger.

    The plant has three actuators (feed, inlet temperatures of jacket and exchanger) and twelve
    instruments. A batch is worth 100 points of polymer, and each step of 50 s costs 0.1 points.
    Feeding faster finishes sooner but brings the reactor closer to thermal runaway. An episode ends
    when the target amount of polymer is reached or the plant trips; it is truncated after 300
    steps.

    Attributes:
        horizon: Steps after which an episode is truncated.
        substeps: Integration steps in one control period. The fastest mode has a decay rate of 4600
            per hour, so fewer than 23 substeps are unstable; 40 give a relative error near 5e-10.
    """

    substeps: int = eqx.field(static=True, default=40)

    name: ClassVar[str] = "ChemicalReactor-v0"
    dt: ClassVar[float] = DT
    constants: ClassVar[Any] = Constants()
    relations = RELATIONS
    initial: ClassVar[Any] = INITIAL
    initial_spread: ClassVar[Any] = INITIAL_SPREAD
    instruments = INSTRUMENTS
    actuators = ACTUATORS
    costs = COSTS
    limits = LIMITS
    penalties = PENALTIES
    reference: ClassVar[str] = REFERENCE
    reward_unit: ClassVar[str] = "points"
    terms: ClassVar[tuple[Term, ...]] = TERMS
    glossary: ClassVar[str] = (
        "A return is 100 points for a finished batch, minus 0.1 per step and 100 for a trip. The "
        "numbers of a PID are its setpoint of the adiabatic temperature in \N{DEGREE SIGN}C and "
        "its feed gain in kg/h per K. PID 100/1500 runs today, and PID 106/1500 is the reference."
    )
    channel_descriptions: ClassVar[str] = (
        "Measured: temperatures T_R of the reactor, T_S of its wall, T_M of the jacket, T_EK of "
        "the reactor contents in the external heat exchanger and T_AWT of its coolant; masses "
        "m_W, m_A_hat and m_P of water, monomer and polymer in the reactor; m_acc fed so far; "
        "T_adiab_hat, the estimated temperature after a total loss of cooling; pressure P in the "
        "reactor. Manipulated: feed, and the inlet temperatures T_in_M and T_in_EK of jacket and "
        "exchanger."
    )

    def __check_init__(self) -> None:
        """Raises if the integration would be unstable."""
        if not isinstance(self.substeps, int) or self.substeps < STABLE_SUBSTEPS:
            raise ValueError(
                f"substeps must be an integer of at least {STABLE_SUBSTEPS}, or the "
                f"integration of a {DT:g} s period is unstable; got {self.substeps}"
            )

    def tunings(self) -> dict[str, PID]:
        """The plant's controllers by name; ``reference`` names the one to beat."""
        return {name: tuning(*settings, dt=DT) for name, settings in SETTINGS.items()}

    def operator_plan(self) -> OperatorPlan:
        """Actions of the operators of this plant while a log is recorded."""
        return operator_plan()

    def admit(self, c: Constants, plant: Balances, command: Float[Array, "3"]) -> Array:
        """The batch sequence stops the feed once the amount of the recipe has been dosed."""
        return _last_of_recipe(plant.m_acc, command)

    def interlock(self, obs: Float[Array, "12"], action: Float[Array, "3"]) -> Array:
        """The batch sequence, applied to the measured accumulated feed."""
        return _last_of_recipe(obs[FED], action)

    def begin(self, c: Constants, initial: Balances, key: PRNGKeyArray) -> Balances:
        """More polymer at the start means less monomer, since the total charge is weighed."""
        return initial._replace(m_A=initial.m_A - (initial.m_P - INITIAL.m_P))

    def begin_disturbance(self, c: Constants, key: PRNGKeyArray) -> Supply:
        """Samples the supply temperatures from their stationary distribution."""
        feed, jacket, exchanger = jax.random.normal(key, (3,), c.coolant_sd.dtype)
        sd = c.coolant_sd
        return Supply(c.feed_temperature_sd * feed, sd * jacket, sd * exchanger)

    def sample_process_noise(self, c: Constants, key: PRNGKeyArray) -> Array:
        """Standard normal numbers for the three supplies."""
        return jax.random.normal(key, (3,), c.coolant_sd.dtype)

    def disturb(self, c: Constants, disturbance: Supply, noise: Array, time: Array) -> Supply:
        """The temperatures of feed and coolants drift about their set values."""
        sds = (c.feed_temperature_sd, c.coolant_sd, c.coolant_sd)
        return Supply(
            *(
                autoregressive(x, n, sd=sd, memory=c.disturbance_memory, dt=DT)
                for x, n, sd in zip(disturbance, noise, sds, strict=True)
            )
        )

    def evolve(
        self, c: Constants, plant: Balances, inputs: Array, disturbance: Supply, time: Array
    ) -> Balances:
        """Integrates nine balances over one control period by the classical Runge-Kutta method."""
        return runge_kutta(
            rates, plant, c, inputs, disturbance, width=HOURS, substeps=self.substeps
        )

    def derivative(
        self, c: Constants, plant: Balances, inputs: Array, disturbance: Supply, time: Array
    ) -> Balances:
        """Time derivatives of the nine balances, per second."""
        return jax.tree.map(lambda rate: rate / 3600, rates(plant, c, inputs, disturbance))

    def measure(self, c: Constants, now: Moment) -> Float[Array, "12"]:
        """The measured channels; the soft sensor is computed from the readings afterwards."""
        x: Balances = now.plant
        none = jnp.zeros_like(x.T_R)
        hours = now.time.astype(none.dtype) * HOURS
        masses = (x.m_W, x.m_A, x.m_P, x.m_acc)
        return jnp.stack([*x[3:8], *masses, none, pressure(x), hours])

    def soft_sensors(self, c: Constants, shown: Float[Array, "12"], now: Moment) -> Array:
        """Adiabatic temperature from the measured masses and the nominal reaction heat."""
        at = INDEX
        measured = now.plant._replace(
            T_R=shown[at["T_R"]],
            m_W=shown[at["m_W"]],
            m_A=shown[at["m_A_hat"]],
            m_P=shown[at["m_P"]],
        )
        estimate = adiabatic_temperature(measured, c.sensor_heat, c.heat_reactor)
        return shown.at[at["T_adiab_hat"]].set(estimate)

    def quantities(self, c: Constants, now: Moment) -> dict[str, Array]:
        """Reactor temperature and true adiabatic temperature, K, and pressure, bar."""
        adiabatic = adiabatic_temperature(now.plant, c.reaction_heat, c.heat_reactor)
        return {"T_R": now.plant.T_R, "T_adiab": adiabatic, "P": pressure(now.plant)}

    def success(self, c: Constants, now: Moment) -> Bool[Array, ""]:
        """Whether the batch has reached its target amount of polymer."""
        return now.plant.m_P >= PRODUCT_TARGET

    def reward(self, c: Constants, before: Moment, now: Moment, trip: Array) -> Array:
        """Points for polymer (100 per batch), minus 0.1 per step, minus 100 for a trip."""
        increase = POINTS_PER_KG * (now.plant.m_P - before.plant.m_P)
        return increase - STEP_PENALTY - jnp.where(trip, TRIP_PENALTY, 0.0)

    def amounts(self, c: Constants, before: Moment, now: Moment, trip: Array) -> dict[str, Array]:
        """Polymer, time and trips of the step."""
        produced = now.plant.m_P - before.plant.m_P
        time = jnp.asarray(DT / 60, produced.dtype)
        return {"polymer": produced, "batch time": time, "trips": trip}
