"""Constants of the two-area system, machines on 900 MVA and the network on 100 MVA."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array

from neorl_envs.blocks import Relation, constant

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
