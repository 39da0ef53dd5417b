"""Integrate the two-area system by SciPy's Radau in float64, for the tests of PowerGrid.

An independent statement: complex NumPy, the whole network solved at every evaluation, absolute
speeds and angles, and the power flow by SciPy's root finder.

    python tools/studies/oracles/power_grid_radau.py packages/neorl-envs/tests/plants/power_grid/radau.npz
"""

import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import root

XD, XQ, XL, XD1, XQ1, X2, RA = 1.8, 1.7, 0.2, 0.3, 0.55, 0.25, 0.0025
TD1, TQ1, TD2, TQ2 = 8.0, 0.4, 0.03, 0.05
H = np.array([6.5, 6.5, 6.175, 6.175])
OMEGA = 2 * np.pi * 60
LINES = {(5, 6): 25, (6, 7): 10, (7, 8): 110, (8, 9): 110, (9, 10): 10, (10, 11): 25}
POWER = np.array([7.0, 7.0, 7.19, 7.0])
SIZE = np.array([1.03, 1.01, 1.03, 1.01])
LOADS = {7: 9.67 + 1.0j, 9: 17.67 + 1.0j}
SECONDS = 5


def bus_admittance() -> np.ndarray:
    y = np.zeros((12, 12), complex)  # buses from 1
    for (a, b), length in LINES.items():
        for _ in range(2 if length == 110 else 1):
            series, shunt = 1 / (length * (1e-4 + 1e-3j)), 0.5j * 1.75e-3 * length
            y[a, a] += series + shunt
            y[b, b] += series + shunt
            y[a, b] -= series
            y[b, a] -= series
    for a, b in ((1, 5), (2, 6), (3, 11), (4, 10)):
        series = 9 / 0.15j
        y[a, a] += series
        y[b, b] += series
        y[a, b] -= series
        y[b, a] -= series
    y[7, 7] += 2.0j
    y[9, 9] += 3.5j
    return y[1:, 1:]


def power_flow(y: np.ndarray) -> np.ndarray:
    demand = np.zeros(11, complex)
    for bus, load in LOADS.items():
        demand[bus - 1] = load

    def voltages(x: np.ndarray) -> np.ndarray:
        angle = np.insert(x[:10], 2, 0.0)
        return np.concatenate([SIZE, x[10:]]) * np.exp(1j * angle)

    def mismatch(x: np.ndarray) -> np.ndarray:
        v = voltages(x)
        s = v * np.conj(y @ v) + demand
        given = np.delete(s.real[:4] - POWER, 2)
        return np.concatenate([given, s.real[4:], s.imag[4:]])

    solution = root(mismatch, np.concatenate([np.zeros(10), np.ones(7)]), tol=1e-14)
    return voltages(solution.x)


def machine_start(v: np.ndarray, s: np.ndarray) -> tuple:
    """States in the steady state; the fluxes from the stator's equations and zero derivatives."""
    i = np.conj(s / v) / 9
    delta = np.angle(v + (RA + 1j * XQ) * i)
    turn = np.exp(-1j * (delta - np.pi / 2))
    (vd, vq), (idd, iq) = (((z * turn).real, (z * turn).imag) for z in (v, i))
    eq1 = vq + RA * iq + XD1 * idd
    ed1 = vd + RA * idd - XQ1 * iq
    field = eq1 + (XD - XD1) * idd
    torque = vd * idd + vq * iq + RA * (idd**2 + iq**2)
    psi1d, psi2q = eq1 - (XD1 - XL) * idd, -ed1 - (XQ1 - XL) * iq
    return delta, eq1, ed1, psi1d, psi2q, np.abs(v), field, torque


class Problem(NamedTuple):
    """Slopes of the 48 states, their start, and the power flow before the load step."""

    slopes: Callable[[float, np.ndarray], np.ndarray]
    start: np.ndarray
    voltage: np.ndarray
    power: np.ndarray


def two_area(*, reduced: bool = False) -> Problem:
    """The system after a step of 100 MW at bus 7; ``reduced`` solves the network beforehand."""
    y = bus_admittance()
    v = power_flow(y)
    s = v * np.conj(y @ v)
    loads = np.zeros(11, complex)
    for bus, load in LOADS.items():
        loads[bus - 1] = np.conj(load) / abs(v[bus - 1]) ** 2
    with_sources = y + np.diag(loads)
    with_sources[range(4), range(4)] += 9 / (RA + 1j * X2)
    # 100 MW more at bus 7, at its scheduled voltage
    with_sources[6, 6] += 1.0 / abs(v[6]) ** 2
    delta, eq1, ed1, psi1d, psi2q, size, field0, torque0 = machine_start(v[:4], s[:4])
    impedance = np.linalg.inv(with_sources)[:4, :4]

    def terminals(source: np.ndarray) -> np.ndarray:
        if reduced:
            return impedance @ source
        return np.linalg.solve(with_sources, np.concatenate([source, np.zeros(7)]))[:4]

    gd1, gd2 = (X2 - XL) / (XD1 - XL), (XD1 - X2) / (XD1 - XL) ** 2
    gq1, gq2 = (X2 - XL) / (XQ1 - XL), (XQ1 - X2) / (XQ1 - XL) ** 2

    def slopes(_: float, x: np.ndarray) -> np.ndarray:
        delta, omega, eq1, ed1, p1, p2, vm, w, l1, l2, valve, steam = x.reshape(12, 4)
        turn = np.exp(1j * (delta - np.pi / 2))
        e = (gq1 * ed1 - (1 - gq1) * p2 + 1j * (gd1 * eq1 + (1 - gd1) * p1)) * turn
        v = terminals(9 * e / (RA + 1j * X2))
        i = (e - v) / (RA + 1j * X2)
        (vd, vq), (idd, iq) = (((z / turn).real, (z / turn).imag) for z in (v, i))
        torque = vd * idd + vq * iq + RA * (idd**2 + iq**2)
        slip = omega - 1
        y1 = 20 * (slip - w)
        y2 = l1 + 0.05 / 0.02 * (y1 - l1)
        vs = np.clip(l2 + 3.0 / 5.4 * (y2 - l2), -0.2, 0.2)
        field = np.clip(field0 + 200 * (size + vs - vm), -6.4, 7.0)
        pm = steam + 2.1 / 7.0 * (valve - steam)
        return np.concatenate(
            [
                OMEGA * slip,
                (pm - torque) / (2 * H),
                (-eq1 - (XD - XD1) * (idd - gd2 * (p1 + (XD1 - XL) * idd - eq1)) + field) / TD1,
                (-ed1 + (XQ - XQ1) * (iq - gq2 * (p2 + (XQ1 - XL) * iq + ed1))) / TQ1,
                (-p1 + eq1 - (XD1 - XL) * idd) / TD2,
                (-p2 - ed1 - (XQ1 - XL) * iq) / TQ2,
                (np.abs(v) - vm) / 0.01,
                (slip - w) / 10,
                (y1 - l1) / 0.02,
                (y2 - l2) / 5.4,
                (np.clip(torque0 - slip / 0.05, 0, 1.1) - valve) / 0.49,
                (valve - steam) / 7.0,
            ]
        )

    zero, one = np.zeros(4), np.ones(4)
    start = (delta, one, eq1, ed1, psi1d, psi2q, size, zero, zero, zero, torque0, torque0)
    return Problem(slopes, np.concatenate(start), v, s[:4])


def main(path: str) -> None:
    problem = two_area()
    run = solve_ivp(
        problem.slopes,
        (0, SECONDS),
        problem.start,
        "Radau",
        t_eval=np.arange(SECONDS + 1.0),
        rtol=1e-10,
        atol=1e-12,
    )
    states = run.y.T.reshape(SECONDS + 1, 12, 4)
    states[:, 0] -= states[:, 0, :1]  # angles relative to machine 1
    states[:, 1] -= 1
    np.savez_compressed(path, voltage=problem.voltage, power=problem.power, states=states)
    print(f"{run.nfev} evaluations; speed after {SECONDS} s: {states[-1, 1]}")


if __name__ == "__main__":
    main(sys.argv[1])
