"""Margins and step responses of loops by python-control 0.10.2, stored for the tests of neorl-core.

    uv venv --python 3.11 build/venv-control
    uv pip install --python build/venv-control/bin/python "control==0.10.2"
    build/venv-control/bin/python tools/studies/oracles/control_loops.py

Dead time is a Pade approximation of order 12 for continuous loops, and a whole number of periods for
sampled ones, whose process is sampled behind a hold. The sampled controller is the one of
``neorl_core.control.PID``: its integral includes the present error, and its derivative is a filtered
backward difference of the measurement.
"""

import argparse
import importlib.metadata
import json
from pathlib import Path

import control
import numpy as np

FIXTURES = Path(__file__).parents[3] / "packages/neorl-core/tests/fixtures"
STEPS = 40
RESPONSES = ("lag and dead time", "integrator", "two lags")
# Numerator, denominator, dead time; kp, ki, kd, tau; period.
LOOPS = {
    "lag and dead time": (([2.0], [10.0, 1.0], 3.0), (0.8, 0.1, 1.0, 0.2), 0.5),
    "long dead time": (([1.0], [5.0, 1.0], 20.0), (0.3, 0.03, 0.0, 0.0), 1.0),
    "integrator": (([0.1], [1.0, 0.0], 4.0), (0.9, 0.02, 1.0, 0.5), 1.0),
    "two lags": (([1.5], [20.0, 12.0, 1.0], 0.0), (3.0, 0.4, 5.0, 0.3), 0.25),
    "inverse response": (([-2.0, 1.0], [15.0, 8.0, 1.0], 1.0), (0.7, 0.1, 0.5, 0.1), 0.5),
    "resonance": (([4.0], [1.0, 0.4, 4.0], 0.2), (0.05, 0.3, 0.0, 0.0), 0.1),
    "runaway": (([1.0], [4.0, -1.0], 0.5), (3.0, 0.3, 0.5, 0.1), 0.1),
    "falling gain": (([-3.0], [30.0, 11.0, 1.0], 2.0), (-0.8, -0.08, -1.0, 0.4), 1.0),
    "four lags": (([1.0], [1.0, 4.0, 6.0, 4.0, 1.0], 0.0), (0.9, 0.35, 0.8, 0.1), 0.2),
    "too tight": (([2.0], [10.0, 1.0], 3.0), (4.0, 0.5, 0.0, 0.0), 0.5),
    "wrong direction": (([1.0], [5.0, 1.0], 1.0), (-0.5, -0.1, 0.0, 0.0), 0.5),
}


def continuous_loop(process: tuple, gains: tuple) -> control.TransferFunction:
    numerator, denominator, dead_time = process
    plant = control.tf(numerator, denominator)
    if dead_time:
        plant = plant * control.tf(*control.pade(dead_time, 12))
    kp, ki, kd, tau = gains
    controller = control.tf([kp], [1.0])
    if ki:
        controller = controller + control.tf([ki], [1.0, 0.0])
    if kd:
        controller = controller + control.tf([kd, 0.0], [tau, 1.0])
    return plant * controller


def sampled_plant(process: tuple, dt: float) -> control.TransferFunction:
    numerator, denominator, dead_time = process
    plant = control.c2d(control.tf(numerator, denominator), dt, "zoh")
    delay = round(dead_time / dt)
    return plant * control.tf([1.0], [1.0] + [0.0] * delay, dt)


def sampled_controller(gains: tuple, dt: float) -> tuple:
    """From the error, and from the measurement through the derivative."""
    kp, ki, kd, tau = gains
    weight = dt / (tau + dt)
    error = control.tf([kp], [1.0], dt)
    if ki:
        error = error + control.tf([ki * dt, 0.0], [1.0, -1.0], dt)
    change = control.tf([kd * weight / dt, -kd * weight / dt], [1.0, weight - 1.0], dt)
    return error, change if kd else control.tf([0.0], [1.0], dt)


def margins(loop: control.TransferFunction) -> dict:
    poles = control.poles(control.feedback(loop, 1))
    stable = bool(np.all(np.abs(poles) < 1) if loop.dt else np.all(poles.real < 0))
    if not stable:
        return {"stable": False}
    factors, phases, distances, _, crossings, _ = control.stability_margins(loop, returnall=True)
    above, below = factors[factors > 1], factors[(factors > 0) & (factors < 1)]
    least = int(np.argmin(np.abs(phases)))
    delays = np.mod(np.deg2rad(phases), 2 * np.pi) / crossings
    if loop.dt:
        delays = delays if np.max(crossings) <= np.pi / loop.dt else delays * loop.dt
    return {
        "stable": True,
        "gain_margin": float(np.min(above)) if above.size else float("inf"),
        "gain_reduction": float(np.max(below)) if below.size else 0.0,
        "phase_margin": float(phases[least]),
        "delay_margin": float(np.min(delays)),
        "peak_sensitivity": float(1 / np.min(distances)),
    }


def responses(process: tuple, gains: tuple, dt: float) -> dict:
    plant, (error, change) = sampled_plant(process, dt), sampled_controller(gains, dt)
    time = dt * np.arange(STEPS)
    loop = control.feedback(plant, error + change)
    record = {}
    for name, closed in (("setpoint", loop * error), ("load", loop)):
        # Without common factors a long record stays accurate.
        system = control.ss(control.minreal(closed, tol=1e-7, verbose=False))
        record[name] = np.squeeze(control.step_response(system, time).outputs).round(10).tolist()
    return record


def model(plant: control.TransferFunction) -> dict:
    """The weights of past measurements and outputs, and the whole periods of further delay."""
    numerator, denominator = plant.num[0][0], plant.den[0][0]
    delay = len(denominator) - len(numerator) - 1
    weights = -denominator[1:] / denominator[0]
    lags = max(np.flatnonzero(weights), default=-1) + 1
    return {
        "a": weights[:lags].tolist(),
        "b": (numerator / denominator[0]).tolist(),
        "delay": delay,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FIXTURES / "control_loops.json")
    out = parser.parse_args().out
    record = {
        "made_with": {name: importlib.metadata.version(name) for name in ("control", "scipy")},
        "loops": {},
    }
    for name, (process, gains, dt) in LOOPS.items():
        error, change = sampled_controller(gains, dt)
        sampled = sampled_plant(process, dt)
        both = {
            "process": process,
            "gains": gains,
            "dt": dt,
            "model": model(sampled),
            "continuous": margins(continuous_loop(process, gains)),
            "sampled": margins(sampled * (error + change)),
        }
        if name in RESPONSES:
            both["responses"] = responses(process, gains, dt)
        record["loops"][name] = both
    out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
