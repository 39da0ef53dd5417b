"""The two-area grid as a simulated plant."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Complex, Float, PRNGKeyArray

from neorl_core import Channel, Policy
from neorl_envs.blocks import Actuator, Instrument, Term, runge_kutta
from neorl_envs.plants._simulated import SimulatedPlant
from neorl_envs.plants._simulated_data import Derived, Moment
from neorl_envs.plants.power_grid import _control, _objective
from neorl_envs.plants.power_grid import _machines as machines
from neorl_envs.plants.power_grid import _network as net
from neorl_envs.plants.power_grid import _world as world
from neorl_envs.plants.power_grid._constants import (
    GRAPH,
    LOAD_BUSES,
    MACHINE_BASE,
    RELATIONS,
    Constants,
)

SUBSTEPS = 50
TELEMETRY = 2  # periods of 1 s between an area's substations and its control centre
_schedule = jax.jit(machines.steady_state)
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
    power, voltage = _control.LARGEST_POWER, _control.LARGEST_VOLTAGE
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
        electrical: Electrical quantities of the machines.
        voltage: Voltage of the buses, complex, shape ``(11,)``.
        mechanical: Power of the turbines in units of 900 MVA, shape ``(4,)``.
        tie: Power from area 1 to area 2, MW.
        ace: Area control errors, MW, shape ``(2,)``.
    """

    electrical: machines.Electrical
    voltage: Complex[Array, "11"]
    mechanical: Float[Array, "4"]
    tie: Float[Array, ""]
    ace: Float[Array, "2"]


def _grid_quantities(c: Derived, now: Moment) -> GridQuantities:
    """Voltages and powers, with the network of the period that has just ended."""
    constants, schedule, x = c.constants, c.derived, now.plant
    time = jnp.maximum(now.time - 1, 0)
    z = world.matrix_now(schedule, now.disturbance, time)
    electrical = machines.electrical(constants, x, z[:4])
    ed, eq = machines.source(constants, x)
    e = jax.lax.complex(ed, eq) * machines.rotate(x.angle)
    v = jnp.sum(z * (net.norton(constants) * e)[None], axis=-1)
    out = world.outage_now(now.disturbance, time)
    circuits = jnp.where(out == 1, 1.0, 2.0).astype(x.speed.dtype)
    tie = net.tie_power(constants, v, circuits)
    lead, lag = constants.turbine
    hertz = machines.FREQUENCY * x.speed.reshape(2, 2).mean(axis=1)
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
    dt = world.DT
    reward_unit: ClassVar[str] = "points"
    terms: ClassVar[tuple[Term, ...]] = _objective.TERMS
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
    costs = _objective.COSTS
    limits = _objective.LIMITS
    penalties: ClassVar[dict[str, float]] = _objective.PENALTIES

    def derive(self, c: Constants) -> machines.Schedule:
        """The power flow of the schedule, the machines in it, and the network's matrices."""
        return _schedule(c)

    def begin(self, c: Derived, initial: Any, key: PRNGKeyArray) -> machines.Machines:
        """The steady state of the schedule."""
        return c.derived.start

    def begin_disturbance(self, c: Derived, key: PRNGKeyArray) -> world.World:
        """Samples the events of the episode."""
        return world.world_at_start(c.constants, key)

    def sample_process_noise(self, c: Derived, key: PRNGKeyArray) -> Float[Array, "2"]:
        """Standard normal numbers for the loads."""
        return jax.random.normal(key, (2,), c.constants.step.dtype)

    def disturb(
        self, c: Derived, disturbance: world.World, noise: Float[Array, "2"], time: Array
    ) -> world.World:
        """The loads one period later."""
        return world.world_later(c.constants, disturbance, noise)

    def evolve(
        self,
        c: Derived,
        plant: machines.Machines,
        inputs: Float[Array, "8"],
        disturbance: world.World,
        time: Array,
    ) -> machines.Machines:
        """The machines one period later, with constant loads and circuits."""
        z = world.matrix_now(c.derived, disturbance, time)[:4]

        def rates(x: machines.Machines) -> machines.Machines:
            return machines.rates(c.constants, c.derived, z, inputs, x)

        return runge_kutta(rates, plant, width=self.dt, substeps=SUBSTEPS)

    def derivative(
        self,
        c: Derived,
        plant: machines.Machines,
        inputs: Float[Array, "8"],
        disturbance: world.World,
        time: Array,
    ) -> machines.Machines:
        """Time derivatives of machines, regulators and governors, per second."""
        z = world.matrix_now(c.derived, disturbance, time)[:4]
        return machines.rates(c.constants, c.derived, z, inputs, plant)

    def measure(self, c: Derived, now: Moment) -> Float[Array, "32"]:
        """All measured quantities in their units."""
        grid = _grid_quantities(c, now)
        power = grid.electrical.voltage * jnp.conj(grid.electrical.current)
        size = jnp.abs(grid.voltage)
        time = jnp.maximum(now.time - 1, 0)
        at_loads = size[jnp.asarray(LOAD_BUSES)]
        return jnp.concatenate(
            [
                machines.FREQUENCY * now.plant.speed,
                MACHINE_BASE * jnp.real(power),
                MACHINE_BASE * jnp.imag(power),
                MACHINE_BASE * grid.mechanical,
                size,
                grid.tie[None],
                world.loads_now(c.derived, now.disturbance, time, at_loads),
                grid.ace,
            ]
        )

    def quantities(self, c: Derived, now: Moment) -> dict[str, Array]:
        """Frequencies in Hz, bus voltages, spread of rotor angles in degrees, errors and fuel."""
        grid = _grid_quantities(c, now)
        angle = jnp.rad2deg(now.plant.angle)
        more = MACHINE_BASE * (grid.mechanical - c.derived.power)
        return {
            "frequency": machines.FREQUENCY * now.plant.speed,
            "voltage": jnp.abs(grid.voltage[4:]),
            "angle_spread": jnp.max(angle) - jnp.min(angle),
            "ace": grid.ace,
            "fuel": jnp.sum(c.constants.price * more) * (self.dt / 3600),
        }

    def reward(self, c: Derived, before: Moment, now: Moment, trip: Bool[Array, ""]) -> Array:
        """Points subtracted for frequency, control errors, fuel in $ and a trip."""
        quantities = self.quantities(c, now)
        penalty = _objective.FREQUENCY_WEIGHT * jnp.mean(quantities["frequency"]) ** 2
        penalty = penalty + _objective.ACE_WEIGHT * jnp.sum(quantities["ace"] ** 2)
        penalty = penalty + _objective.FUEL_WEIGHT * quantities["fuel"]
        return -penalty * self.dt - jnp.where(trip, _objective.TRIP, 0.0)

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
            "AGC that winds up": _control.winding_up(),
            self.reference: _control.tuned_control(),
        }
