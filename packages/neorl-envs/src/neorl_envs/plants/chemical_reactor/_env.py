"""ChemicalReactor-v0: declarations and functions of the plant."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core.control import PID
from neorl_envs.blocks import Term, autoregressive, runge_kutta
from neorl_envs.plants._simulated import Moment, SimulatedPlant
from neorl_envs.plants.chemical_reactor import _objective as objective
from neorl_envs.plants.chemical_reactor._channels import ACTUATORS, INDEX, INSTRUMENTS
from neorl_envs.plants.chemical_reactor._control import REFERENCE, SETTINGS, tuning
from neorl_envs.plants.chemical_reactor._operation import operator_plan
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
from neorl_envs.recording._operators import OperatorPlan

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
    costs = objective.COSTS
    limits = objective.LIMITS
    penalties = objective.PENALTIES
    reference: ClassVar[str] = REFERENCE
    reward_unit: ClassVar[str] = "points"
    terms: ClassVar[tuple[Term, ...]] = objective.TERMS
    glossary: ClassVar[str] = (
        "A return is 100 points for a finished batch, minus 0.1 per step and 100 for a trip. PID "
        "106/1500: setpoint of the adiabatic temperature 379.15 K (106 \N{DEGREE SIGN}C), feed "
        "gain 1500 kg/h per K."
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
        return now.plant.m_P >= objective.PRODUCT_TARGET

    def reward(self, c: Constants, before: Moment, now: Moment, trip: Array) -> Array:
        """Points for polymer (100 per batch), minus 0.1 per step, minus 100 for a trip."""
        increase = objective.POINTS_PER_KG * (now.plant.m_P - before.plant.m_P)
        return increase - objective.STEP_PENALTY - jnp.where(trip, objective.TRIP_PENALTY, 0.0)

    def amounts(self, c: Constants, before: Moment, now: Moment, trip: Array) -> dict[str, Array]:
        """Polymer, time and trips of the step."""
        produced = now.plant.m_P - before.plant.m_P
        time = jnp.asarray(DT / 60, produced.dtype)
        return {"polymer": produced, "batch time": time, "trips": trip}
