"""The two-area system: constants, network, machines and disturbances."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, PRNGKeyArray

from neorl_envs.blocks import Relation, autoregressive, constant

KUNDUR = "Kundur 1994, Power System Stability and Control, example 12.6"
OWN = "own choice"
GOVERNOR = "TGOV1, PSS/E"
MACHINES, BUSES = 4, 11
BASE, MACHINE_BASE = 100.0, 900.0  # MVA
LINES = ((4, 5, 25.0), (5, 6, 10.0), (8, 9, 10.0), (9, 10, 25.0))
"""Buses (counted from 0) and length in km of the lines inside the areas."""
TIES = ((6, 7), (7, 8))
TIE_LENGTH = 110.0  # km, two circuits each
TRANSFORMERS = ((0, 4), (1, 5), (2, 10), (3, 9))
LOAD_BUSES = (6, 8)
SLACK = 2


GRAPH = (
    *(
        f"{channel}_{i} = machine{i}.{feature}"
        for channel, feature in (
            ("frequency", "frequency"), ("P", "active"), ("Q", "reactive"),
            ("P_mechanical", "turbine"), ("V", "voltage"), ("dP_ref", "power_reference"),
            ("dV_ref", "voltage_reference"),
        )
        for i in range(1, MACHINES + 1)
    ),
    *(f"V_bus_{i} = bus{i}.voltage" for i in range(MACHINES + 1, BUSES + 1)),
    *(f"load_{i + 1} = bus{i + 1}.load" for i in LOAD_BUSES),
    "ACE_1 = area12.error", "ACE_2 = area13.error", "P_tie = exchange12-13.power",
    *(
        f"{kind}{a + 1}-{b + 1}"
        for kind, pairs in (
            ("line", [line[:2] for line in LINES]), ("tie", TIES), ("transformer", TRANSFORMERS)
        )
        for pair in pairs for a, b in (pair, pair[::-1])
    ),
    *(
        f"schedule{a}-{b}"
        for area, machines in ((12, (1, 2)), (13, (3, 4)))
        for i in machines for a, b in ((area, i), (i, area))
    ),
    "exchange13-12",
)  # fmt: skip
"""The grid as a graph: four machines, seven buses, two areas; every line in both directions.

Nodes 1 to 11 have the numbers of their buses; a machine has the number of its own bus. Nodes 12 and
13 are the areas, which hold the control errors and are connected to their machines and to each
other.
"""


class Constants(NamedTuple):
    """Data of machines, controllers, network, loads, schedule and disturbances.

    Attributes:
        xd: Synchronous reactance, d axis.
        xq: Synchronous reactance, q axis.
        xl: Leakage reactance.
        xd1: Transient reactance, d axis.
        xq1: Transient reactance, q axis.
        x2: Subtransient reactance of both axes, equal so that the stator has a constant impedance.
        ra: Armature resistance.
        td1: Open-circuit transient time constant, d axis.
        tq1: Open-circuit transient time constant, q axis.
        td2: Open-circuit subtransient time constant, d axis.
        tq2: Open-circuit subtransient time constant, q axis.
        inertia: Inertia of the machines.
        exciter: Gain of the voltage regulators.
        field: Smallest and largest field voltage.
        sensor: Time constant of the voltage sensors.
        stabiliser: Gain of the power system stabilisers.
        washout: Washout time constant of the stabilisers.
        leads: Lead and lag time constants of their two stages.
        stabiliser_limit: Largest output of the stabilisers.
        droop: Droop of the governors.
        valve: Time constant of the steam valves.
        turbine: Lead and lag time constants of the turbines.
        valve_limit: Largest opening of the valves.
        line: Resistance, reactance and susceptance of a line.
        transformer: Reactance of a transformer.
        load: Active and reactive load at buses 7 and 9.
        capacitor: Capacitors at buses 7 and 9.
        power: Scheduled power of the machines; the third one balances the grid.
        voltage: Scheduled terminal voltages.
        price: Price of energy from each machine.
        bias: Frequency bias of an area in its control error.
        load_sd: Relative standard deviation of the loads.
        load_memory: Time constant of the load fluctuations.
        step: Smallest and largest step of a load.
        outage: Probability that a tie circuit trips in an episode.
        reclosing: Time after which the circuit is reclosed.
    """

    xd: Array = constant(1.8, "1", KUNDUR)
    xq: Array = constant(1.7, "1", KUNDUR)
    xl: Array = constant(0.2, "1", KUNDUR)
    xd1: Array = constant(0.3, "1", KUNDUR)
    xq1: Array = constant(0.55, "1", KUNDUR)
    x2: Array = constant(0.25, "1", KUNDUR)
    ra: Array = constant(0.0025, "1", KUNDUR)
    td1: Array = constant(8.0, "s", KUNDUR)
    tq1: Array = constant(0.4, "s", KUNDUR)
    td2: Array = constant(0.03, "s", KUNDUR)
    tq2: Array = constant(0.05, "s", KUNDUR)
    inertia: Array = constant((6.5, 6.5, 6.175, 6.175), "s", KUNDUR, spread=1.0)
    exciter: Array = constant(200.0, "1", KUNDUR, domain="not negative")
    field: Array = constant((-6.4, 7.0), "1", OWN, domain="real")
    sensor: Array = constant(0.01, "s", KUNDUR)
    stabiliser: Array = constant(20.0, "1", KUNDUR, spread=1.0, domain="not negative")
    washout: Array = constant(10.0, "s", KUNDUR)
    leads: Array = constant(((0.05, 0.02), (3.0, 5.4)), "s", KUNDUR)
    stabiliser_limit: Array = constant(0.2, "1", OWN)
    droop: Array = constant(0.05, "1", GOVERNOR, spread=1.0)
    valve: Array = constant(0.49, "s", GOVERNOR, spread=1.0)
    turbine: Array = constant((2.1, 7.0), "s", GOVERNOR)
    valve_limit: Array = constant(1.1, "1", OWN)
    line: Array = constant((1e-4, 1e-3, 1.75e-3), "1/km", KUNDUR)
    transformer: Array = constant(0.15, "1", KUNDUR)
    load: Array = constant(((967.0, 100.0), (1767.0, 100.0)), "MW, Mvar", KUNDUR)
    capacitor: Array = constant((200.0, 350.0), "Mvar", KUNDUR)
    power: Array = constant((700.0, 700.0, 719.0, 700.0), "MW", KUNDUR)
    voltage: Array = constant((1.03, 1.01, 1.03, 1.01), "1", KUNDUR)
    price: Array = constant((28.0, 30.0, 34.0, 36.0), "$/MWh", OWN)
    bias: Array = constant(600.0, "MW/Hz", "two machines' droop")
    load_sd: Array = constant(0.01, "1", OWN, clean=0.0, domain="not negative")
    load_memory: Array = constant(60.0, "s", OWN)
    step: Array = constant((50.0, 200.0), "MW", OWN, clean=(0.0, 0.0), domain="not negative")
    outage: Array = constant(0.2, "1", OWN, clean=0.0, domain="fraction")
    reclosing: Array = constant(10.0, "s", OWN)


RELATIONS = (
    Relation("xl", "<", "x2", "leakage is a part of every reactance"),
    Relation("x2", "<", "xd1", "subtransient below transient below synchronous"),
    Relation("xd1", "<", "xd", "subtransient below transient below synchronous"),
    Relation("x2", "<", "xq1", "subtransient below transient below synchronous"),
    Relation("xq1", "<", "xq", "subtransient below transient below synchronous"),
    Relation("td2", "<", "td1", "subtransients decay first"),
    Relation("tq2", "<", "tq1", "subtransients decay first"),
    Relation("field[0]", "<", "field[1]", "least and largest"),
    Relation("step[0]", "<=", "step[1]", "least and largest"),
    Relation("power", "<=", MACHINE_BASE, "a machine has 900 MVA"),
    Relation("line[0]", "<", "line[1]", "lines are mostly reactance"),
)


def incidence(pairs: Sequence[Sequence[float]]) -> np.ndarray:
    """Incidence matrix, one row per branch: 1 at its first bus, -1 at its second."""
    rows = np.zeros((len(pairs), BUSES))
    for row, pair in zip(rows, pairs, strict=True):
        row[int(pair[0])], row[int(pair[1])] = 1, -1
    return rows


# Admittances, the power flow of the schedule, and the matrices from sources to buses.


PORTS = (0, 1, 2, 3, *LOAD_BUSES)
MOVING = BUSES - 1
NEWTON_STEPS = 8


class PowerFlow(NamedTuple):
    """The steady state of the schedule.

    Attributes:
        voltage: Complex voltage of the buses, shape ``(11,)``, relative to the angle of machine 1.
        injected: Complex power of the machines, on 100 MVA, shape ``(4,)``.
        tie: Power from area 1 to area 2, MW.
    """

    voltage: Complex[Array, "11"]
    injected: Complex[Array, "4"]
    tie: Float[Array, ""]


def _complex(x: Array) -> Array:
    return jax.lax.complex(x, jnp.zeros_like(x))


def _branches(pairs: tuple, admittance: Array) -> Array:
    ends = jnp.asarray(incidence(pairs), admittance.dtype)
    with jax.default_matmul_precision("highest"):
        return (ends.T * admittance[None]) @ ends


def tie_admittance(c: Constants) -> tuple[Array, Array]:
    """Series and half the shunt admittance of one tie circuit."""
    r, x, b = c.line * TIE_LENGTH
    return 1 / jax.lax.complex(r, x), jax.lax.complex(jnp.zeros_like(b), b / 2)


def admittance(c: Constants, circuits: tuple[int, int] = (2, 2)) -> Complex[Array, "11 11"]:
    """Bus admittance matrix with capacitors but without machines and loads."""
    r, x, b = c.line
    unit = 1 / jax.lax.complex(r, x)
    lengths = jnp.asarray([length for *_, length in LINES], c.line.dtype)
    zero = jnp.zeros_like(x)
    transformer = 1 / jax.lax.complex(zero, c.transformer * BASE / MACHINE_BASE)
    series, half = tie_admittance(c)
    count = jnp.asarray(circuits, c.line.dtype)
    y = _branches(LINES, unit / _complex(lengths)) + _branches(TIES, series * _complex(count))
    y = y + _branches(TRANSFORMERS, jnp.broadcast_to(transformer, (4,)))
    at_lines = jnp.asarray(np.abs(incidence(LINES)), c.line.dtype)
    at_ties = jnp.asarray(np.abs(incidence(TIES)), c.line.dtype)
    charging = lengths @ at_lines * b / 2 + (count @ at_ties) * jnp.imag(half)
    charging = charging.at[jnp.asarray(LOAD_BUSES)].add(c.capacitor / BASE)
    return y + jnp.diag(jax.lax.complex(jnp.zeros_like(charging), charging))


def power_flow(c: Constants) -> PowerFlow:
    """Solves the power balances by Newton's method; the third machine is the slack."""
    y = admittance(c)
    loads = jnp.zeros((BUSES, 2), c.line.dtype).at[jnp.asarray(LOAD_BUSES)].set(c.load / BASE)
    scheduled = jnp.zeros(BUSES, c.line.dtype).at[:4].set(c.power / BASE) - loads[:, 0]

    def voltage(x: Array) -> Array:
        angle = jnp.concatenate([x[:SLACK], jnp.zeros(1, x.dtype), x[SLACK:MOVING]])
        size = jnp.concatenate([c.voltage, x[MOVING:]])
        return jax.lax.complex(size * jnp.cos(angle), size * jnp.sin(angle))

    def mismatch(x: Array) -> Array:
        v = voltage(x)
        power = v * jnp.conj(y @ v)
        active, reactive = jnp.real(power) - scheduled, jnp.imag(power) + loads[:, 1]
        return jnp.concatenate([active[:SLACK], active[SLACK + 1 :], reactive[4:]])

    def newton(_: Array, x: Array) -> Array:
        return x - jnp.linalg.solve(jax.jacfwd(mismatch)(x), mismatch(x))

    start = jnp.concatenate([jnp.zeros(MOVING), jnp.ones(BUSES - 4)]).astype(c.line.dtype)
    with jax.default_matmul_precision("highest"):
        v = voltage(jax.lax.fori_loop(0, NEWTON_STEPS, newton, start))
        return PowerFlow(v, (v * jnp.conj(y @ v))[:4], tie_power(c, v, jnp.asarray(2.0)))


def tie_power(c: Constants, v: Complex[Array, "11"], circuits: Array) -> Float[Array, ""]:
    """Power from bus 7 towards bus 8, MW."""
    series, half = tie_admittance(c)
    current = (v[6] - v[7]) * series + v[6] * half
    return BASE * circuits.astype(c.line.dtype) * jnp.real(v[6] * jnp.conj(current))


def norton(c: Constants) -> Complex[Array, ""]:
    """Admittance of a machine's subtransient source on 100 MVA."""
    return MACHINE_BASE / BASE / jax.lax.complex(c.ra, c.x2)


def load_admittance(c: Constants, flow: PowerFlow) -> Complex[Array, "2"]:
    """Constant admittance of the scheduled loads."""
    size = jnp.abs(flow.voltage[jnp.asarray(LOAD_BUSES)])
    share = c.load / (BASE * size[:, None] ** 2)
    return jax.lax.complex(share[:, 0], -share[:, 1])


def from_ports(c: Constants, loads: Complex[Array, "2"]) -> Float[Array, "3 2 11 6"]:
    """Real and imaginary parts of the bus voltages per unit of current at machines and loads.

    The first axis stands for both tie lines complete, one circuit of the first tie line out, and
    one circuit of the second out.
    """
    columns = []
    for circuits in ((2, 2), (1, 2), (2, 1)):
        y = admittance(c, circuits)
        y = y.at[jnp.arange(4), jnp.arange(4)].add(norton(c))
        buses = jnp.asarray(LOAD_BUSES)
        z = jnp.linalg.inv(y.at[buses, buses].add(loads))[:, jnp.asarray(PORTS)]
        columns.append(jnp.stack([jnp.real(z), jnp.imag(z)]))
    return jnp.stack(columns)


def with_loads(ports: Float[Array, "2 11 6"], more: Complex[Array, "2"]) -> Complex[Array, "11 4"]:
    """Bus voltages per unit of machine current, with additional load admittance at buses 7 and 9.

    Uses Woodbury's identity with an explicitly inverted two-by-two matrix.
    """
    z = jax.lax.complex(ports[0], ports[1])
    machines, loads = z[:, :4], z[:, 4:]
    at = z[jnp.asarray(LOAD_BUSES)]
    a, b = 1 + more[0] * at[0, 4], more[0] * at[0, 5]
    d, e = more[1] * at[1, 4], 1 + more[1] * at[1, 5]
    row, other = more[0] * at[0, :4], more[1] * at[1, :4]
    first, second = (e * row - b * other), (a * other - d * row)
    correction = loads[:, :1] * first[None] + loads[:, 1:] * second[None]
    return machines - correction / (a * e - b * d)


# Sixth-order machines with regulators, stabilisers and governors.


FREQUENCY = 60.0
SPEED = 2 * jnp.pi * FREQUENCY
SHARE = MACHINE_BASE / BASE


class Machines(NamedTuple):
    """State of the four machines, each of shape ``(4,)``, on their own base.

    Attributes:
        angle: Angle of the rotors, relative to machine 1, rad.
        speed: Relative deviation from 60 Hz, so that float32 resolves it.
        eq1: Transient voltage, q axis.
        ed1: Transient voltage, d axis.
        psi1d: Subtransient flux, d axis.
        psi2q: Subtransient flux, q axis.
        sensed: Terminal voltage at the regulators.
        washed: State of the stabilisers' washout.
        lead1: State of their first lead-lag stage.
        lead2: State of their second lead-lag stage.
        valve: Opening of the valves.
        steam: State of the turbines.
    """

    angle: Float[Array, "4"]
    speed: Float[Array, "4"]
    eq1: Float[Array, "4"]
    ed1: Float[Array, "4"]
    psi1d: Float[Array, "4"]
    psi2q: Float[Array, "4"]
    sensed: Float[Array, "4"]
    washed: Float[Array, "4"]
    lead1: Float[Array, "4"]
    lead2: Float[Array, "4"]
    valve: Float[Array, "4"]
    steam: Float[Array, "4"]


class Schedule(NamedTuple):
    """Quantities that follow from the constants, computed once.

    Attributes:
        start: The machines in the steady state of the schedule.
        field: Field voltages in this state, shape ``(4,)``.
        terminal: Terminal voltages in this state, shape ``(4,)``.
        power: Mechanical power in this state, shape ``(4,)``.
        tie: Scheduled power from area 1 to area 2, MW.
        load: Scheduled load admittances, real and imaginary, shape ``(2, 2)``.
        megawatt: Scheduled loads, MW, shape ``(2,)``.
        ports: Result of :func:`from_ports`, shape ``(3, 2, 11, 6)``.
    """

    start: Machines
    field: Float[Array, "4"]
    terminal: Float[Array, "4"]
    power: Float[Array, "4"]
    tie: Float[Array, ""]
    load: Float[Array, "2 2"]
    megawatt: Float[Array, "2"]
    ports: Float[Array, "3 2 11 6"]


class Electrical(NamedTuple):
    """Electrical quantities of the machines, each of shape ``(4,)``, on their own base.

    Attributes:
        voltage: Complex terminal voltage.
        current: Complex current into the network.
        d: Current in the d axis.
        q: Current in the q axis.
        torque: Electrical power in the air gap.
    """

    voltage: Complex[Array, "4"]
    current: Complex[Array, "4"]
    d: Float[Array, "4"]
    q: Float[Array, "4"]
    torque: Float[Array, "4"]


def ratios(c: Constants) -> tuple[Array, Array, Array, Array]:
    """The factors between transient and subtransient quantities of both axes (Sauer and Pai)."""
    d, q = c.xd1 - c.xl, c.xq1 - c.xl
    return (c.x2 - c.xl) / d, (c.xd1 - c.x2) / d**2, (c.x2 - c.xl) / q, (c.xq1 - c.x2) / q**2


def rotate(angle: Float[Array, "4"]) -> Complex[Array, "4"]:
    """Rotates machine axes to those of the network; the q axis leads the rotor's angle."""
    return jax.lax.complex(jnp.sin(angle), -jnp.cos(angle))


def source(c: Constants, x: Machines) -> tuple[Array, Array]:
    """Subtransient voltages of the d and the q axis."""
    gd1, _, gq1, _ = ratios(c)
    return gq1 * x.ed1 - (1 - gq1) * x.psi2q, gd1 * x.eq1 + (1 - gd1) * x.psi1d


def electrical(c: Constants, x: Machines, z: Complex[Array, "4 4"]) -> Electrical:
    """Solves machines and network by one product with a constant matrix."""
    ed, eq = source(c, x)
    turn = rotate(x.angle)
    e = jax.lax.complex(ed, eq) * turn
    v = jnp.sum(z * (norton(c) * e)[None], axis=-1)
    current = (e - v) / jax.lax.complex(c.ra, c.x2)
    axes = current * jnp.conj(turn)
    d, q = jnp.real(axes), jnp.imag(axes)
    return Electrical(v, current, d, q, ed * d + eq * q)


def rates(
    c: Constants, s: Schedule, z: Complex[Array, "4 4"], inputs: Float[Array, "8"], x: Machines
) -> Machines:
    """Time derivatives of the machines.

    ``z`` maps source currents to terminal voltages; ``inputs`` are changes of power and voltage
    references, per unit of the machine base.
    """
    power, voltage = inputs[:4], inputs[4:]
    gd1, gd2, gq1, gq2 = ratios(c)
    now = electrical(c, x, z)
    (lead_a, lag_a), (lead_b, lag_b) = c.leads
    first = c.stabiliser * (x.speed - x.washed)
    second = x.lead1 + lead_a / lag_a * (first - x.lead1)
    damping = x.lead2 + lead_b / lag_b * (second - x.lead2)
    damping = jnp.clip(damping, -c.stabiliser_limit, c.stabiliser_limit)
    error = s.terminal + voltage + damping - x.sensed
    field = jnp.clip(s.field + c.exciter * error, c.field[0], c.field[1])
    lead, lag = c.turbine
    mechanical = x.steam + lead / lag * (x.valve - x.steam)
    opening = jnp.clip(s.power + power - x.speed / c.droop, 0, c.valve_limit)
    nominal = jnp.asarray(SPEED, x.speed.dtype)
    return Machines(
        angle=nominal * (x.speed - x.speed[0]),
        speed=(mechanical - now.torque) / (2 * c.inertia),
        eq1=(field - x.eq1 - (c.xd - c.xd1) * (gd1 * now.d + gd2 * (x.eq1 - x.psi1d))) / c.td1,
        ed1=((c.xq - c.xq1) * (gq1 * now.q - gq2 * (x.psi2q + x.ed1)) - x.ed1) / c.tq1,
        psi1d=(x.eq1 - x.psi1d - (c.xd1 - c.xl) * now.d) / c.td2,
        psi2q=-(x.psi2q + x.ed1 + (c.xq1 - c.xl) * now.q) / c.tq2,
        sensed=(jnp.abs(now.voltage) - x.sensed) / c.sensor,
        washed=(x.speed - x.washed) / c.washout,
        lead1=(first - x.lead1) / lag_a,
        lead2=(second - x.lead2) / lag_b,
        valve=(opening - x.valve) / c.valve,
        steam=(x.valve - x.steam) / lag,
    )


def steady_state(c: Constants) -> Schedule:
    """Computes the steady state of the schedule from its power flow."""
    flow = power_flow(c)
    load = load_admittance(c, flow)
    v = flow.voltage[:4]
    current = jnp.conj(flow.injected / v) / SHARE
    rotor = v + jax.lax.complex(c.ra, c.xq) * current
    angle = jnp.angle(rotor)
    axes = current * jnp.conj(rotate(angle))
    terminal = v * jnp.conj(rotate(angle))
    d, q = jnp.real(axes), jnp.imag(axes)
    ed2 = jnp.real(terminal) + c.ra * d - c.x2 * q
    eq2 = jnp.imag(terminal) + c.ra * q + c.x2 * d
    eq1 = eq2 + (c.xd1 - c.x2) * d
    ed1 = ed2 - (c.xq1 - c.x2) * q
    zero = jnp.zeros_like(d)
    power = ed2 * d + eq2 * q
    size = jnp.abs(v)
    start = Machines(
        angle=angle - angle[0],
        speed=zero,
        eq1=eq1,
        ed1=ed1,
        psi1d=eq1 - (c.xd1 - c.xl) * d,
        psi2q=-ed1 - (c.xq1 - c.xl) * q,
        sensed=size,
        washed=zero,
        lead1=zero,
        lead2=zero,
        valve=power,
        steam=power,
    )
    return Schedule(
        start=start,
        field=eq1 + (c.xd - c.xd1) * d,
        terminal=size,
        power=power,
        tie=flow.tie,
        load=jnp.stack([jnp.real(load), jnp.imag(load)]),
        megawatt=c.load[:, 0],
        ports=from_ports(c, load),
    )


# Disturbances of the grid: loads that fluctuate and step, and a tie circuit that trips.


DT = 1.0
STEP_TIMES = ((10.0, 100.0), (130.0, 230.0))  # s
OUTAGE_TIMES = (10.0, 250.0)  # s
APART = (12.0, 30.0)  # s before and after a load step in which no outage may occur
NEVER = 1e9


class World(NamedTuple):
    """The disturbances of an episode.

    Attributes:
        wander: Relative deviation of both loads, shape ``(2,)``.
        step_time: Times at which a load steps, s, shape ``(2,)``.
        step: Change of the loads at buses 7 and 9 by each step, MW, shape ``(2, 2)``.
        outage_time: Time at which a tie circuit trips, s.
        outage: Line of the circuit that trips: 1 for 7-8, 2 for 8-9.
        closing_time: Time at which it is reclosed, s.
    """

    wander: Float[Array, "2"]
    step_time: Float[Array, "2"]
    step: Float[Array, "2 2"]
    outage_time: Float[Array, ""]
    outage: Float[Array, ""]
    closing_time: Float[Array, ""]


def world_at_start(c: Constants, key: PRNGKeyArray) -> World:
    """Samples the events: a load step in each half of the episode, and possibly an outage."""
    keys = jax.random.split(key, 3)
    u = jax.random.uniform(keys[0], (10,), c.step.dtype)
    earliest, latest = jnp.asarray(STEP_TIMES, c.step.dtype).T
    size = (c.step[0] + (c.step[1] - c.step[0]) * u[2:4]) * jnp.where(u[4:6] < 0.5, -1.0, 1.0)
    at_seven = (u[6:8] < 0.5).astype(u.dtype)
    when = OUTAGE_TIMES[0] + (OUTAGE_TIMES[1] - OUTAGE_TIMES[0]) * u[8]
    drawn = jax.random.uniform(keys[1], (), c.step.dtype)
    step_time = jnp.floor(earliest + (latest - earliest) * u[:2])
    before, after = APART
    for step in step_time:
        close = (when > step - before) & (when < step + after)
        when = jnp.where(close, step + after, when)
    tripped = jnp.where(drawn < c.outage, jnp.floor(when), NEVER)
    return World(
        wander=c.load_sd * jax.random.normal(keys[2], (2,), c.step.dtype),
        step_time=step_time,
        step=size[:, None] * jnp.stack([at_seven, 1 - at_seven], axis=1),
        outage_time=tripped,
        outage=jnp.where(u[9] < 0.5, 1.0, 2.0).astype(u.dtype),
        closing_time=tripped + c.reclosing,
    )


def world_later(c: Constants, world: World, normal: Float[Array, "2"]) -> World:
    """The disturbances one period later, with new load fluctuations."""
    wander = autoregressive(world.wander, normal, sd=c.load_sd, memory=c.load_memory, dt=DT)
    return world._replace(wander=wander)


def outage_now(world: World, time: Array) -> Array:
    """The line with a circuit out: 0 for none, 1 for line 7-8, 2 for line 8-9."""
    seconds = time.astype(world.step.dtype) * DT
    out = (seconds >= world.outage_time) & (seconds < world.closing_time)
    return jnp.where(out, world.outage, 0).astype(jnp.int32)


def more_load(s: Schedule, world: World, time: Array) -> Complex[Array, "2"]:
    """Load admittance in addition to the schedule; steps are defined at the scheduled voltage."""
    seconds = time.astype(world.step.dtype) * DT
    stepped = jnp.sum(jnp.where((seconds >= world.step_time)[:, None], world.step, 0), axis=0)
    per_megawatt = s.load[0] / s.megawatt
    real = s.load[0] * world.wander + per_megawatt * stepped
    return jax.lax.complex(real, s.load[1] * world.wander)


def matrix_now(s: Schedule, world: World, time: Array) -> Complex[Array, "11 4"]:
    """Bus voltages per unit of source current in the period that begins at ``time``."""
    return with_loads(s.ports[outage_now(world, time)], more_load(s, world, time))


def loads_now(
    s: Schedule, world: World, time: Array, voltage: Float[Array, "2"]
) -> Float[Array, "2"]:
    """Active power of both loads, MW."""
    return BASE * (s.load[0] + jnp.real(more_load(s, world, time))) * voltage**2
