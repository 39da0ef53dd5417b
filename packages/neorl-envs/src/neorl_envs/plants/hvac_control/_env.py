"""The office as a simulated plant."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Channel, Policy
from neorl_envs.blocks import Actuator, Instrument, Term
from neorl_envs.plants._simulated import SimulatedPlant
from neorl_envs.plants._simulated_data import Derived, Moment, Parameters
from neorl_envs.plants.hvac_control import _control, _objective
from neorl_envs.plants.hvac_control import _physics as physics
from neorl_envs.plants.hvac_control import _weather as weather

HOUR = weather.AN_HOUR
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
    terms: ClassVar[tuple[Term, ...]] = _objective.TERMS
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
    costs = _objective.COSTS
    limits = _objective.LIMITS
    penalties = _objective.PENALTIES

    def derive(self, c: physics.Constants) -> physics.Sampled:
        """The transition of the network over one period, by a matrix exponential."""
        return _sampled(c)

    def begin_disturbance(self, c: Derived, key: PRNGKeyArray) -> weather.World:
        """Samples the week of the year and its weather."""
        return weather.world_at_start(c.constants, key)

    def sample_process_noise(self, c: Derived, key: PRNGKeyArray) -> Float[Array, "3"]:
        """Random numbers for temperature, clouds and people."""
        return jax.random.normal(key, (3,), c.constants.day.dtype)

    def disturb(
        self, c: Derived, disturbance: weather.World, noise: Float[Array, "3"], time: Array
    ) -> weather.World:
        """Weather and people one period later."""
        return weather.world_later(c.constants, disturbance, noise)

    def evolve(
        self,
        c: Derived,
        plant: physics.Building,
        inputs: Float[Array, "5"],
        disturbance: weather.World,
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
        disturbance: weather.World,
        time: Array,
    ) -> physics.Building:
        """Heat balances of air and mass, K/s."""
        a, b = physics.network(c.constants)
        rate = a @ jnp.concatenate(plant) + b @ self._held(c, inputs, disturbance, time)
        return physics.Building(rate[:5], rate[5:])

    def _held(
        self, c: Derived, heat: Float[Array, "5"], disturbance: weather.World, time: Array
    ) -> Float[Array, "12"]:
        """Temperatures and heat flows that are held over a period."""
        now = weather.conditions(c.constants, disturbance, time)
        hour = weather.hour_of(time, heat.dtype)
        sun, use = physics.gains(c.constants, now.radiation, now.people, hour)
        return physics.held_inputs(c.constants, heat, now.temperature, sun, use)

    def measure(self, c: Derived, now: Moment) -> Float[Array, "18"]:
        """Temperatures, last heat flows, the conditions now and in an hour, and time."""
        here = weather.conditions(c.constants, now.disturbance, now.time)
        in_an_hour = weather.conditions(c.constants, now.disturbance, now.time, HOUR)
        angle = 2 * jnp.pi / 24 * weather.hour_of(now.time, now.inputs.dtype)
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
        conditions = weather.conditions(c.constants, now.disturbance, now.time - 1)
        return {
            "power": physics.electric_power(c.constants, now.inputs, conditions.temperature),
            "price": conditions.price,
            "discomfort": _objective.discomfort(now.plant.air, now.time),
        }

    def reward(self, c: Derived, before: Moment, now: Moment, trip: Bool[Array, ""]) -> Array:
        """Minus the bill of the period and the price of discomfort, $."""
        quantities = self.quantities(c, now)
        bill = quantities["price"] * quantities["power"]
        price = jnp.asarray(_objective.COMFORT_PRICE, bill.dtype)
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
        return _objective.measured_outcome(power, obs[13], next_obs[:5], next_obs[12])

    def tunings(self) -> dict[str, Policy]:
        """The controllers by name, the ordinary one first."""
        return {
            "PI": _control.thermostats(),
            self.reference: _control.scheduled_control(self.name),
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
        constants = weather.replace_series(params.constants, self.horizon + HOUR, **given)
        return params._replace(constants=constants)
