"""The two-area grid as a simulated plant: limits, reward, controllers and declarations."""

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Complex, Float, PRNGKeyArray

from neorl_core import Channel, CostChannel, Policy
from neorl_core.control import PID, ConstantPolicy, standard_pid
from neorl_envs.blocks import (
    Actuator,
    Instrument,
    Limit,
    Term,
    runge_kutta,
)
from neorl_envs.plants._simulated import Derived, Moment, SimulatedPlant
from neorl_envs.plants.power_grid import _physics as physics
from neorl_envs.plants.power_grid._physics import (
    GRAPH,
    LOAD_BUSES,
    MACHINE_BASE,
    RELATIONS,
    Constants,
)

# Automatic generation control, with and without anti-windup.


LARGEST_POWER, LARGEST_VOLTAGE = 0.15, 0.05
AREA = 1800.0  # MW of machines
ACE = 30
NEVER = 1e9  # s


def generation_control(
    *, rate: float, gain: float, tracking_time: float, by_frequency: float = 0.0
) -> PID:
    """PI loops on the area control errors, shared equally among machines, with voltage support.

    Args:
        rate: Integral gain, relative to the control error of an area per machine, 1/s.
        gain: Proportional gain, relative to the same error.
        tracking_time: Anti-windup time constant with which the integral follows the ramps of the
            references, s.
        by_frequency: Change of a machine's voltage reference per hertz of its frequency, 1/Hz.
            Loads draw less power at a lower voltage, so this is the fastest available support.
    """
    return standard_pid(
        gain=(gain / AREA,) * 4 + (-by_frequency,) * 4,
        integral_time=(gain / rate,) * 4 + (math.inf,) * 4,
        setpoint=0.0,
        low=(-LARGEST_POWER,) * 4 + (-LARGEST_VOLTAGE,) * 4,
        high=(LARGEST_POWER,) * 4 + (LARGEST_VOLTAGE,) * 4,
        measured=(ACE, ACE, ACE + 1, ACE + 1, 0, 1, 2, 3),
        dt=1.0,
        tracking_time=tracking_time,
    )


def winding_up() -> PID:
    """Slow integral action that keeps integrating while the references still ramp."""
    return generation_control(rate=0.03, gain=1e-3, tracking_time=NEVER)


def tuned_control() -> PID:
    """Fast action with anti-windup at the ramp limits, and voltage support by frequency."""
    return generation_control(rate=0.25, gain=0.8, tracking_time=5.0, by_frequency=0.25)


def bad_policy() -> ConstantPolicy:
    """The lowest power and voltage references, so that frequency and voltages fall."""
    low = jnp.asarray((-LARGEST_POWER,) * 4 + (-LARGEST_VOLTAGE,) * 4)
    return ConstantPolicy(low)


# Objective of the operation of the grid.


SOFT_FREQUENCY, TRIP_FREQUENCY = 0.2, 0.5  # Hz
SOFT_VOLTAGE, TRIP_VOLTAGE = (0.90, 1.05), (0.85, 1.15)

COSTS = (
    CostChannel("frequency", "1", 5.0, "episode"),
    CostChannel("voltage", "1", 5.0, "episode"),
)
LIMITS = (
    Limit(
        "frequency", -SOFT_FREQUENCY, SOFT_FREQUENCY, cost="frequency", factor=1 / 0.3, unit="Hz"
    ),
    Limit("frequency", -TRIP_FREQUENCY, TRIP_FREQUENCY, trip=True, unit="Hz"),
    Limit("voltage", *SOFT_VOLTAGE, cost="voltage", factor=1 / 0.03, unit="1"),
    Limit("voltage", *TRIP_VOLTAGE, trip=True, unit="1"),
    Limit("angle_spread", high=180.0, trip=True, unit="deg"),
)
PENALTIES = {"frequency": 1.0, "voltage": 1.0}
FREQUENCY_WEIGHT = 5.0  # points per Hz2 and second
ACE_WEIGHT = 1e-5  # points per MW2 and second
FUEL_WEIGHT = 1e-3  # points per $
TRIP = 100.0  # points
TERMS = (
    Term("frequency deviation", "Hz2 s", -FREQUENCY_WEIGHT),
    Term("area control error", "MW2 s", -ACE_WEIGHT),
    Term("fuel", "$", -FUEL_WEIGHT * physics.DT),
    Term("trips", "1", -TRIP),
)


SUBSTEPS = 50
TELEMETRY = 2  # periods of 1 s between an area's substations and its control centre
_schedule = jax.jit(physics.steady_state)
UNITS = range(1, 5)


def _instruments() -> tuple[Instrument, ...]:
    return (
        *(Instrument(Channel(f"frequency_{i}", "Hz", -1.0, 1.0), sd=1e-3) for i in UNITS),
        *(Instrument(Channel(f"P_{i}", "MW", -500.0, 1500.0), sd=1.0) for i in UNITS),
        *(Instrument(Channel(f"Q_{i}", "Mvar", -1000.0, 1500.0), sd=1.0) for i in UNITS),
        *(Instrument(Channel(f"P_mechanical_{i}", "MW", 0.0, 1200.0), sd=1.0) for i in UNITS),
        *(Instrument(Channel(f"V_{i}", "1", 0.0, 1.5), sd=5e-4) for i in UNITS),
        *(Instrument(Channel(f"V_bus_{i}", "1", 0.0, 1.5), sd=5e-4) for i in range(5, 12)),
        Instrument(Channel("P_tie", "MW", -1500.0, 1500.0), sd=2.0, dead_time=TELEMETRY),
        *(
            Instrument(Channel(f"load_{i}", "MW", 0.0, 3500.0), relative=0.005, dead_time=TELEMETRY)
            for i in (7, 9)
        ),
        *(
            Instrument(Channel(f"ACE_{i}", "MW", -2000.0, 2000.0), sd=2.0, dead_time=TELEMETRY)
            for i in (1, 2)
        ),
    )


def _actuators() -> tuple[Actuator, ...]:
    power, voltage = LARGEST_POWER, LARGEST_VOLTAGE
    return (
        *(
            Actuator(Channel(f"dP_ref_{i}", "1", -power, power), start=0.0, speed=0.005)
            for i in UNITS
        ),
        *(
            Actuator(Channel(f"dV_ref_{i}", "1", -voltage, voltage), start=0.0, speed=0.01)
            for i in UNITS
        ),
    )


class GridQuantities(eqx.Module):
    """Algebraic quantities of the grid, computed from its state.

    Attributes:
        electrical: Electrical quantities of the physics.
        voltage: Voltage of the buses, complex, shape ``(11,)``.
        mechanical: Power of the turbines in units of 900 MVA, shape ``(4,)``.
        tie: Power from area 1 to area 2, MW.
        ace: Area control errors, MW, shape ``(2,)``.
    """

    electrical: physics.Electrical
    voltage: Complex[Array, "11"]
    mechanical: Float[Array, "4"]
    tie: Float[Array, ""]
    ace: Float[Array, "2"]


def _grid_quantities(c: Derived, now: Moment) -> GridQuantities:
    """Voltages and powers, with the network of the period that has just ended."""
    constants, schedule, x = c.constants, c.derived, now.plant
    time = jnp.maximum(now.time - 1, 0)
    z = physics.matrix_now(schedule, now.disturbance, time)
    electrical = physics.electrical(constants, x, z[:4])
    ed, eq = physics.source(constants, x)
    e = jax.lax.complex(ed, eq) * physics.rotate(x.angle)
    v = jnp.sum(z * (physics.norton(constants) * e)[None], axis=-1)
    out = physics.outage_now(now.disturbance, time)
    circuits = jnp.where(out == 1, 1.0, 2.0).astype(x.speed.dtype)
    tie = physics.tie_power(constants, v, circuits)
    lead, lag = constants.turbine
    hertz = physics.FREQUENCY * x.speed.reshape(2, 2).mean(axis=1)
    export = (tie - schedule.tie) * jnp.asarray((1.0, -1.0), tie.dtype)
    return GridQuantities(
        electrical=electrical,
        voltage=v,
        mechanical=x.steam + lead / lag * (x.valve - x.steam),
        tie=tie,
        ace=export + constants.bias * hertz,
    )


class PowerGrid(SimulatedPlant):
    """Four machines in two areas and their tie; see :mod:`.power_grid`.

    Example:
        >>> env = PowerGrid()
        >>> env.spec.n_obs, env.spec.n_action
        (32, 8)
    """

    horizon: int = eqx.field(static=True, default=300)

    name: ClassVar[str] = "PowerGrid-v0"
    dt = physics.DT
    reward_unit: ClassVar[str] = "points"
    terms: ClassVar[tuple[Term, ...]] = TERMS
    reference: ClassVar[str] = "AGC with anti-windup"
    graph: ClassVar[tuple[str, ...]] = GRAPH
    glossary: ClassVar[str] = (
        "A return is minus the points for frequency deviations, area control errors and fuel "
        "beyond the schedule. AGC is automatic generation control."
    )
    channel_descriptions: ClassVar[str] = (
        "Measured: frequency, active, reactive and mechanical power and voltage of four machines, "
        "voltages of seven buses, power over the tie line, two loads and the control errors of "
        "two areas. Manipulated: changes of the power and voltage references, per unit of 900 "
        "MVA."
    )
    constants = Constants()
    relations = RELATIONS
    initial = ()
    instruments = _instruments()
    actuators = _actuators()
    costs = COSTS
    limits = LIMITS
    penalties: ClassVar[dict[str, float]] = PENALTIES

    def derive(self, c: Constants) -> physics.Schedule:
        """The power flow of the schedule, the machines in it, and the network's matrices."""
        return _schedule(c)

    def begin(self, c: Derived, initial: Any, key: PRNGKeyArray) -> physics.Machines:
        """The steady state of the schedule."""
        return c.derived.start

    def begin_disturbance(self, c: Derived, key: PRNGKeyArray) -> physics.World:
        """Samples the events of the episode."""
        return physics.world_at_start(c.constants, key)

    def sample_process_noise(self, c: Derived, key: PRNGKeyArray) -> Float[Array, "2"]:
        """Standard normal numbers for the loads."""
        return jax.random.normal(key, (2,), c.constants.step.dtype)

    def disturb(
        self, c: Derived, disturbance: physics.World, noise: Float[Array, "2"], time: Array
    ) -> physics.World:
        """The loads one period later."""
        return physics.world_later(c.constants, disturbance, noise)

    def evolve(
        self,
        c: Derived,
        plant: physics.Machines,
        inputs: Float[Array, "8"],
        disturbance: physics.World,
        time: Array,
    ) -> physics.Machines:
        """The machines one period later, with constant loads and circuits."""
        z = physics.matrix_now(c.derived, disturbance, time)[:4]

        def rates(x: physics.Machines) -> physics.Machines:
            return physics.rates(c.constants, c.derived, z, inputs, x)

        return runge_kutta(rates, plant, width=self.dt, substeps=SUBSTEPS)

    def derivative(
        self,
        c: Derived,
        plant: physics.Machines,
        inputs: Float[Array, "8"],
        disturbance: physics.World,
        time: Array,
    ) -> physics.Machines:
        """Time derivatives of machines, regulators and governors, per second."""
        z = physics.matrix_now(c.derived, disturbance, time)[:4]
        return physics.rates(c.constants, c.derived, z, inputs, plant)

    def measure(self, c: Derived, now: Moment) -> Float[Array, "32"]:
        """All measured quantities in their units."""
        grid = _grid_quantities(c, now)
        power = grid.electrical.voltage * jnp.conj(grid.electrical.current)
        size = jnp.abs(grid.voltage)
        time = jnp.maximum(now.time - 1, 0)
        at_loads = size[jnp.asarray(LOAD_BUSES)]
        return jnp.concatenate(
            [
                physics.FREQUENCY * now.plant.speed,
                MACHINE_BASE * jnp.real(power),
                MACHINE_BASE * jnp.imag(power),
                MACHINE_BASE * grid.mechanical,
                size,
                grid.tie[None],
                physics.loads_now(c.derived, now.disturbance, time, at_loads),
                grid.ace,
            ]
        )

    def quantities(self, c: Derived, now: Moment) -> dict[str, Array]:
        """Frequencies in Hz, bus voltages, spread of rotor angles in degrees, errors and fuel."""
        grid = _grid_quantities(c, now)
        angle = jnp.rad2deg(now.plant.angle)
        more = MACHINE_BASE * (grid.mechanical - c.derived.power)
        return {
            "frequency": physics.FREQUENCY * now.plant.speed,
            "voltage": jnp.abs(grid.voltage[4:]),
            "angle_spread": jnp.max(angle) - jnp.min(angle),
            "ace": grid.ace,
            "fuel": jnp.sum(c.constants.price * more) * (self.dt / 3600),
        }

    def reward(self, c: Derived, before: Moment, now: Moment, trip: Bool[Array, ""]) -> Array:
        """Points subtracted for frequency, control errors, fuel in $ and a trip."""
        quantities = self.quantities(c, now)
        penalty = FREQUENCY_WEIGHT * jnp.mean(quantities["frequency"]) ** 2
        penalty = penalty + ACE_WEIGHT * jnp.sum(quantities["ace"] ** 2)
        penalty = penalty + FUEL_WEIGHT * quantities["fuel"]
        return -penalty * self.dt - jnp.where(trip, TRIP, 0.0)

    def amounts(
        self, c: Derived, before: Moment, now: Moment, trip: Bool[Array, ""]
    ) -> dict[str, Array]:
        """Integrals of squared frequency and control errors, fuel and trips."""
        quantities = self.quantities(c, now)
        return {
            "frequency deviation": jnp.mean(quantities["frequency"]) ** 2 * self.dt,
            "area control error": jnp.sum(quantities["ace"] ** 2) * self.dt,
            "fuel": quantities["fuel"],
            "trips": trip,
        }

    def tunings(self) -> dict[str, Policy]:
        """The controllers by name, the ordinary one first."""
        return {
            "AGC that winds up": winding_up(),
            self.reference: tuned_control(),
        }
