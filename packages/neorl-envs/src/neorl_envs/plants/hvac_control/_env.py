"""The office as a simulated plant: thermostats, reward and declarations."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Channel, CostChannel, Policy
from neorl_core.control import PID, ConstantPolicy, standard_pid
from neorl_envs.blocks import (
    Actuator,
    FeedforwardPID,
    Instrument,
    Limit,
    Term,
    constant_values,
    handle,
    no_feedforward,
)
from neorl_envs.plants._simulated import Derived, Moment, Parameters, SimulatedPlant
from neorl_envs.plants.hvac_control import _physics as physics
from neorl_envs.plants.hvac_control._physics import DT, DT_HOURS, Constants, is_open

# Thermostats of the office: one setpoint, or two with load compensation and preheating.


ZONES = 5
GAIN = 2.0  # kW/K
SCHEDULED_GAIN = (4.0, 3.0, 3.0, 2.0, 2.0)  # kW/K, in proportion to the size of the zones
HEAT_TO, COOL_TO = (21.7, 18.0), (23.5, 27.0)  # degC, open and closed
RAMP = (4.5, 7.5)  # h
LARGEST_HEAT = 4.8  # kW
HANDLES = (
    handle("setpoints of heating", "heat_to", "degC", shift=0.2, count=2),
    handle("setpoints of cooling", "cool_to", "degC", shift=0.2, count=2),
    handle("hours of the morning's ramp", "ramp", "h", shift=0.25, count=2),
    handle("steady loss of the zones", "loss", "kW/K", factor=0.1, count=ZONES),
    handle("heat of a full office", "use", "kW", factor=0.1, count=ZONES),
    handle("heat of the sun", "sun", "kW m2/W", factor=0.2, count=ZONES),
)


def thermostats() -> PID:
    """One PI loop per zone (2 kW/K, integral time one hour) at 22.5 degC day and night."""
    return standard_pid(
        gain=GAIN,
        integral_time=3600.0,
        setpoint=22.5,
        low=-8.0,
        high=8.0,
        measured=tuple(range(ZONES)),
        dt=DT,
    )


class Schedule(NamedTuple):
    """Parameters of the reference controller.

    Attributes:
        gain: Gain of every loop, kW/K, shape ``(5,)``.
        heat_to: Heating setpoints when open and when closed, degC.
        cool_to: Cooling setpoints when open and when closed, degC.
        ramp: Begin and end of the morning ramp from the closed to the open setpoints, h.
        loss: Steady heat loss of every zone, kW/K.
        use: Heat of a fully occupied office, kW, shape ``(5,)``.
        sun: Heat per unit of radiation, kW m2/W, shape ``(5,)``.
    """

    gain: Float[Array, "5"]
    heat_to: Float[Array, "2"]
    cool_to: Float[Array, "2"]
    ramp: Float[Array, "2"]
    loss: Float[Array, "5"]
    use: Float[Array, "5"]
    sun: Float[Array, "5"]


def demand(schedule: Schedule, obs: Float[Array, " obs"]) -> Float[Array, "5"]:
    """Minus the missing heat, in kelvin for a loop with the schedule's gain and setpoint zero.

    The result is ``max(0, T_heat - T + load(T_heat) / K) + min(0, T_cool - T + load(T_cool) / K)``
    with the opposite sign, where ``load`` is the steady heat that holds a setpoint.
    """
    air, outdoor, radiation, people = obs[:ZONES], obs[10], obs[11], obs[12]
    hour = jnp.arctan2(obs[16], obs[17]) * (12 / jnp.pi) % 24
    begin, end = schedule.ramp
    morning = jnp.where(hour < 12, jnp.clip((hour - begin) / (end - begin), 0, 1), 0)
    opened = jnp.maximum(morning, jnp.where(people > 0.05, 1, 0).astype(obs.dtype))
    free = schedule.use * people + schedule.sun * radiation

    def missing(ends: Float[Array, "2"]) -> Float[Array, "5"]:
        wanted = ends[1] + opened * (ends[0] - ends[1])
        load = schedule.loss * (wanted - outdoor) - free
        return wanted - air + load / schedule.gain

    heat = jnp.maximum(missing(schedule.heat_to), 0)
    cool = jnp.minimum(missing(schedule.cool_to), 0)
    return -(heat + cool)


def scheduled_control(name: str) -> FeedforwardPID:
    """Two setpoints, compensation of the load of weather, sun and people, and preheating.

    The setpoints are 21.7 and 23.5 degC when open and 18 and 27 degC when closed, with a ramp
    from 4.5 to 7.5 h. Each zone gets at most 4.8 kW, so that five zones keep the demand limit in
    frost. These numbers are the best of 80 random candidates by score; the best ten are within 3 %
    of each other.
    """
    c = constant_values(Constants(), dtype=jnp.float32)
    loops = standard_pid(
        gain=SCHEDULED_GAIN,
        setpoint=0.0,
        low=-8.0,
        high=8.0,
        measured=tuple(range(ZONES)),
        dt=DT,
    )
    each = 1e-3 * (c.person / c.area_a_person + c.equipment)
    limit = jnp.full(ZONES, LARGEST_HEAT)
    return FeedforwardPID(
        feedback=loops,
        numbers=Schedule(
            gain=jnp.asarray(SCHEDULED_GAIN),
            heat_to=jnp.asarray(HEAT_TO),
            cool_to=jnp.asarray(COOL_TO),
            ramp=jnp.asarray(RAMP),
            loss=1e-3 * c.outdoor,
            use=each * c.floor,
            sun=1e-3 * c.solar_gain * 0.5 * c.window,
        ),
        low=-limit,
        high=limit,
        measure=demand,
        feedforward=no_feedforward,
        origin=(name, "preheating and load compensation"),
        handles=HANDLES,
    )


def bad_policy() -> ConstantPolicy:
    """Constant full heating in all zones, which is too warm and exceeds the demand limit."""
    return ConstantPolicy(jnp.full(ZONES, 8.0))


# Objective of the office: comfort, demand and the electricity bill.


OPEN_BAND = (21.0, 24.0)  # degC
CLOSED_BAND = (15.0, 30.0)  # degC
DEMAND_LIMIT = 12.0  # kW
COMFORT_PRICE = 0.5  # $ per K h

COSTS = (
    CostChannel("energy", "kWh", 1.0, "episode"),
    CostChannel("comfort", "K h", 5.0, "episode"),
)
LIMITS = (
    Limit("power", high=DEMAND_LIMIT, cost="energy", factor=DT_HOURS, unit="kW"),
    Limit("discomfort", high=0.0, cost="comfort", factor=DT_HOURS, unit="K"),
)
TERMS = (
    Term("electricity", "kWh", 0.0),  # no fixed worth, since the price varies; the bill includes it
    Term("bill", "$", -1.0),
    Term("discomfort", "K h", -COMFORT_PRICE),
)
PENALTIES = {"energy": 1.0, "comfort": 1.0}


def band(time: Array, dtype: Any) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Lower and upper end of the comfort band, degC."""
    low, high = jnp.where(is_open(time), *jnp.asarray((OPEN_BAND, CLOSED_BAND), dtype))
    return low, high


def discomfort(air: Float[Array, "5"], time: Array) -> Float[Array, ""]:
    """Mean distance of the zones from the comfort band, K."""
    return _distance(air, *band(time, air.dtype))


def measured_outcome(
    power: Float[Array, ""],
    price: Float[Array, ""],
    air: Float[Array, "5"],
    occupancy: Float[Array, ""],
) -> Float[Array, "3"]:
    """Reward and costs of a period from measurements; the office is open if anyone is there.

    Power is the mean in kW, the price in $/kWh, temperatures of the zones are those at the end in
    degC, and the occupancy is a fraction of all people.
    """
    low, high = jnp.where(occupancy > 0, *jnp.asarray((OPEN_BAND, CLOSED_BAND), air.dtype))
    distance = _distance(air, low, high)
    reward = -(price * power + jnp.asarray(COMFORT_PRICE, air.dtype) * distance)
    excess = jnp.maximum(power - DEMAND_LIMIT, 0)
    return jnp.stack([reward, excess, distance]) * DT_HOURS


def _distance(air: Float[Array, "5"], low: Array, high: Array) -> Float[Array, ""]:
    return jnp.mean(jnp.maximum(jnp.maximum(low - air, air - high), 0))


HOUR = physics.AN_HOUR
_sampled = jax.jit(physics.discretise)


def _instruments() -> tuple[Instrument, ...]:
    zones = [Instrument(Channel(f"T_{zone}", "degC", 0.0, 60.0), sd=0.1) for zone in physics.ZONES]
    heats = [Instrument(Channel(f"heat_{zone}", "kW", -8.0, 8.0)) for zone in physics.ZONES]
    world = (
        Instrument(Channel("T_outdoor", "degC", -40.0, 55.0), sd=0.2),
        Instrument(Channel("radiation", "W/m2", 0.0, 1400.0), relative=0.03),
        Instrument(Channel("occupancy", "1", 0.0, 1.0)),
        Instrument(Channel("price", "$/kWh", -1.0, 5.0)),
        Instrument(Channel("T_outdoor_in_1_h", "degC", -40.0, 55.0), sd=0.5),
        Instrument(Channel("radiation_in_1_h", "W/m2", 0.0, 1400.0), relative=0.1),
        Instrument(Channel("sin_hour", "1", -1.0, 1.0)),
        Instrument(Channel("cos_hour", "1", -1.0, 1.0)),
    )
    return (*zones, *heats, *world)


class HVACControl(SimulatedPlant):
    """Heating and cooling of a five-zone office over a week; see :mod:`.hvac_control`.

    Example:
        >>> env = HVACControl()
        >>> env.spec.n_obs, env.spec.n_action
        (18, 5)
    """

    horizon: int = eqx.field(static=True, default=672)

    name: ClassVar[str] = "HVACControl-v0"
    dt = physics.DT
    reward_unit: ClassVar[str] = "$"
    terms: ClassVar[tuple[Term, ...]] = TERMS
    exogenous: ClassVar[tuple[str, ...]] = (
        "T_outdoor",
        "radiation",
        "occupancy",
        "price",
        "T_outdoor_in_1_h",
        "radiation_in_1_h",
        "sin_hour",
        "cos_hour",
    )
    reference: ClassVar[str] = "preheating and load compensation"
    glossary: ClassVar[str] = (
        "A return is minus the week's electricity bill and minus 0.5 $ for every kelvin hour of "
        "discomfort."
    )
    channel_descriptions: ClassVar[str] = (
        "Measured: air temperature (T) and heating or cooling last delivered (heat) of five "
        "zones, the weather now and in an hour, occupancy, electricity price and time of day."
    )
    constants = physics.Constants()
    relations = physics.RELATIONS
    initial = physics.Building._make((np.full(5, 21.0), np.full(5, 21.0)))
    initial_spread = physics.Building._make((1.0, 1.0))
    instruments = _instruments()
    actuators = tuple(
        Actuator(
            Channel(f"heat_{zone}", "kW", -8.0, 8.0),
            start=0.0,
            speed=4.0 / physics.DT,
            lag=300.0,
        )
        for zone in physics.ZONES
    )
    costs = COSTS
    limits = LIMITS
    penalties = PENALTIES

    def derive(self, c: physics.Constants) -> physics.Sampled:
        """The transition of the network over one period, by a matrix exponential."""
        return _sampled(c)

    def begin_disturbance(self, c: Derived, key: PRNGKeyArray) -> physics.World:
        """Samples the week of the year and its weather."""
        return physics.world_at_start(c.constants, key)

    def sample_process_noise(self, c: Derived, key: PRNGKeyArray) -> Float[Array, "3"]:
        """Random numbers for temperature, clouds and people."""
        return jax.random.normal(key, (3,), c.constants.day.dtype)

    def disturb(
        self, c: Derived, disturbance: physics.World, noise: Float[Array, "3"], time: Array
    ) -> physics.World:
        """Weather and people one period later."""
        return physics.world_later(c.constants, disturbance, noise)

    def evolve(
        self,
        c: Derived,
        plant: physics.Building,
        inputs: Float[Array, "5"],
        disturbance: physics.World,
        time: Array,
    ) -> physics.Building:
        """The temperatures one period later."""
        inputs_of_period = self._held(c, inputs, disturbance, time)
        return physics.evolve_building(c.derived, plant, inputs_of_period)

    def derivative(
        self,
        c: Derived,
        plant: physics.Building,
        inputs: Float[Array, "5"],
        disturbance: physics.World,
        time: Array,
    ) -> physics.Building:
        """Heat balances of air and mass, K/s."""
        a, b = physics.network(c.constants)
        rate = a @ jnp.concatenate(plant) + b @ self._held(c, inputs, disturbance, time)
        return physics.Building(rate[:5], rate[5:])

    def _held(
        self, c: Derived, heat: Float[Array, "5"], disturbance: physics.World, time: Array
    ) -> Float[Array, "12"]:
        """Temperatures and heat flows that are held over a period."""
        now = physics.conditions(c.constants, disturbance, time)
        hour = physics.hour_of(time, heat.dtype)
        sun, use = physics.gains(c.constants, now.radiation, now.people, hour)
        return physics.held_inputs(c.constants, heat, now.temperature, sun, use)

    def measure(self, c: Derived, now: Moment) -> Float[Array, "18"]:
        """Temperatures, last heat flows, the conditions now and in an hour, and time."""
        here = physics.conditions(c.constants, now.disturbance, now.time)
        in_an_hour = physics.conditions(c.constants, now.disturbance, now.time, HOUR)
        angle = 2 * jnp.pi / 24 * physics.hour_of(now.time, now.inputs.dtype)
        world = (
            *here,
            in_an_hour.temperature,
            in_an_hour.radiation,
            jnp.sin(angle),
            jnp.cos(angle),
        )
        return jnp.concatenate([now.plant.air, now.inputs, jnp.stack(world)])

    def quantities(self, c: Derived, now: Moment) -> dict[str, Array]:
        """Electric power of the period in kW, its price, and the discomfort at its end in K."""
        conditions = physics.conditions(c.constants, now.disturbance, now.time - 1)
        return {
            "power": physics.electric_power(c.constants, now.inputs, conditions.temperature),
            "price": conditions.price,
            "discomfort": discomfort(now.plant.air, now.time),
        }

    def reward(self, c: Derived, before: Moment, now: Moment, trip: Bool[Array, ""]) -> Array:
        """Minus the bill of the period and the price of discomfort, $."""
        quantities = self.quantities(c, now)
        bill = quantities["price"] * quantities["power"]
        price = jnp.asarray(COMFORT_PRICE, bill.dtype)
        return -(bill + price * quantities["discomfort"]) * physics.DT_HOURS

    def amounts(
        self, c: Derived, before: Moment, now: Moment, trip: Bool[Array, ""]
    ) -> dict[str, Array]:
        """Electricity, its bill, and discomfort integrated over time."""
        quantities = self.quantities(c, now)
        energy = quantities["power"] * physics.DT_HOURS
        return {
            "electricity": energy,
            "bill": quantities["price"] * energy,
            "discomfort": quantities["discomfort"] * physics.DT_HOURS,
        }

    def objective(
        self,
        obs: Float[Array, "18"],
        action: Float[Array, "5"],
        next_obs: Float[Array, "18"],
        last_action: Float[Array, "5"],
    ) -> Float[Array, "3"]:
        """Reward and costs from the measurements, assuming the nominal heat pumps."""
        c = self.default_params().constants
        power = physics.electric_power(c, next_obs[5:10], obs[10])
        return measured_outcome(power, obs[13], next_obs[:5], next_obs[12])

    def tunings(self) -> dict[str, Policy]:
        """The controllers by name, the ordinary one first."""
        return {
            "PI": thermostats(),
            self.reference: scheduled_control(self.name),
        }

    def with_records(
        self,
        params: Parameters,
        *,
        temperature: Float[ArrayLike, " time"] | None = None,
        radiation: Float[ArrayLike, " time"] | None = None,
        price: Float[ArrayLike, " time"] | None = None,
    ) -> Parameters:
        """Replaces the sampled weather and prices with a user's own records.

        Args:
            params: Parameters from :meth:`default_params` or :meth:`sample_params`.
            temperature: Outdoor temperature in degC, one value every 900 s from Monday 0 h.
            radiation: Global horizontal radiation in W/m2, at the same times.
            price: Price of electricity in $/kWh, at the same times.

        Raises:
            ValueError: If a series is shorter than the horizon plus one hour, or is not finite.

        Example:
            >>> import numpy as np
            >>> env = HVACControl(horizon=96)
            >>> hourly = 10 + 5 * np.cos(np.arange(26) * np.pi / 12)
            >>> steps = np.interp(np.arange(100) / 4, np.arange(26), hourly)
            >>> params = env.with_records(env.default_params(), temperature=steps)
            >>> params.constants.recorded.tolist()
            [1.0, 0.0, 0.0]
        """
        given = {"temperature": temperature, "radiation": radiation, "price": price}
        constants = physics.replace_series(params.constants, self.horizon + HOUR, **given)
        return params._replace(constants=constants)
