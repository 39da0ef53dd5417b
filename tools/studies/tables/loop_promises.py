"""Compare the margins that a change sheet promises with those of the true plant.

Usage:
    python tools/studies/tables/loop_promises.py [NAME ...]  every plant with a bank of PIDs
    python tools/studies/tables/loop_promises.py --logs 100

Each plant that has a bank of PIDs as a tuning records ``--logs`` logs under it, with gains changed
at random and with the moves of its operators. From each log a model of every loop is identified and gains are searched, as
``neorl-train loop`` does. The true loop is the plant's own answer to a step of one output, from
rest and less its noise, the other outputs held. Counted are the proposals whose sheet says Ms at
most 2 and gain margin at least 1.7, and how many of these have both on the plant. Stored in
``tools/studies/benchmarks/results/loop_promises.json``.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.loops import LoopRecord, loop_model, propose
from neorl_core import InputError
from neorl_core.control import PID
from neorl_core.loops import PIDGains
from neorl_envs import collect_log, make
from neorl_envs.plants import PLANTS

OUT = Path(__file__).parents[1] / "benchmarks/results/loop_promises.json"
WANTED = 0.95


def main() -> int:
    """Measures every plant and prints one line for each; fails below 95 of 100."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--logs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--quick", action="store_true", help="print only, store nothing")
    arguments = parser.parse_args()
    done: dict[str, Any] = json.loads(OUT.read_text()) if OUT.is_file() else {}
    for name in arguments.names or PLANTS:
        environment = make(name)
        banks = [one for one in environment.tunings().values() if isinstance(one, PID)]
        if not banks:
            continue
        rows, reference = [], banks[0]
        for seed in range(arguments.logs):
            rows += proposals(environment, reference, seed, arguments.steps)
        said = [row for row in rows if row["said"]]
        kept = sum(row["kept"] for row in said)
        done[name] = {"logs": arguments.logs, "loops": rows}
        print(
            f"{name}: {len(rows)} loops, {len(said)} proposals, {kept} keep the promise", flush=True
        )
    if not arguments.quick:
        OUT.write_text(json.dumps(done, indent=1) + "\n")
    said = [row for one in done.values() for row in one["loops"] if row["said"]]
    kept = sum(row["kept"] for row in said)
    print(f"all: {kept} of {len(said)} proposals keep the promise")
    return int(bool(said) and kept < WANTED * len(said))


def proposals(environment: Any, reference: PID, seed: int, steps: int) -> list[dict[str, Any]]:
    """What is proposed for every loop of one log, and what the plant says to it."""
    rng = np.random.default_rng(seed)
    factors = np.exp(rng.uniform(np.log(0.3), np.log(1.5), len(reference.measured)))
    bank = dataclasses.replace(
        reference, kp=reference.kp * factors, ki=reference.ki * factors, kd=reference.kd * factors
    )
    log = collect_log(
        environment, {"today": bank}, n_steps=steps, key=jax.random.key(seed), spread=0.0
    )
    found = []
    for loop, measured in enumerate(bank.measured):
        today = PIDGains(*(float(leaf[loop]) for leaf in (bank.kp, bank.ki, bank.kd, bank.tau)))
        model = loop_model(loop_record(environment, log, bank, loop))
        row: dict[str, Any] = {"loop": environment.spec.action[loop].name, "seed": seed}
        if not model.usable:
            found.append(row | {"said": False, "why": model.why_not})
            continue
        channel = environment.spec.action[loop]
        try:
            proposal = propose(
                model, today, period=environment.spec.dt, output_span=channel.high - channel.low
            )
        except InputError as error:
            found.append(row | {"said": False, "why": str(error)})
            continue
        chosen = proposal.chosen
        sensitivity, margin = true_margins(environment, bank, loop, measured, chosen.gains)
        row |= {
            "said": chosen.margins.accepted,
            "kept": bool(sensitivity <= 2.0 and margin >= 1.7),
            "sensitivity": [chosen.margins.peak_sensitivity.high, sensitivity],
            "gain_margin": [chosen.margins.gain_margin.low, margin],
        }
        found.append(row)
    return found


def loop_record(environment: Any, log: Any, bank: PID, loop: int) -> LoopRecord:
    """The rows of one loop of a log."""
    measured, spec = bank.measured[loop], environment.spec
    y = np.asarray(log.transitions.obs)[:, measured].astype(float)
    u = np.asarray(log.transitions.action)[:, loop].astype(float)
    segment = np.zeros(len(y), int)
    segment[np.asarray(log.episode_starts)[1:]] = 1
    setpoint = np.full(len(y), float(bank.setpoint[loop]))
    if log.setpoint is not None:
        names = list(log.attributes.get("setpoints", ()))
        name = spec.obs[measured].name
        if name in names:
            setpoint = np.asarray(log.setpoint)[:, names.index(name)].astype(float)
    manual = np.zeros(len(y), bool) if log.mode is None else np.asarray(log.mode)[:, loop]
    return LoopRecord(
        spec.action[loop].name, y, u, setpoint, ~manual, np.cumsum(segment), spec.dt,
        spec.obs[measured].unit, spec.action[loop].unit,
        (spec.obs[measured].low, spec.obs[measured].high),
        (spec.action[loop].low, spec.action[loop].high),
    )  # fmt: skip


def true_margins(
    environment: Any, bank: PID, loop: int, measured: int, gains: PIDGains, steps: int = 1500
) -> tuple[float, float]:
    """Peak sensitivity and gain margin around the plant's own answer to a step of the output.

    The plant is brought to rest by today's bank; then one output is moved by a fiftieth of its
    range and all are held. Its measurements less those without the move, with the same noise, are
    the step response.
    """
    spec = environment.spec
    parameters = environment.default_params()
    state, obs = environment.reset(parameters, jax.random.key(0))
    carry, key = bank.initial_carry(), jax.random.key(1)

    def settle(carried: Any, _: Any) -> tuple[Any, Any]:
        state, obs, carry = carried
        carry, action = bank(carry, obs, None)
        state, step = environment.step(parameters, state, action, key)
        return (state, step.obs, bank.sent(carry, step.applied)), action

    (state, obs, carry), actions = jax.lax.scan(
        settle, (state, obs, carry), None, length=spec.horizon // 2
    )
    held = actions[-1]
    size = 0.02 * (spec.action[loop].high - spec.action[loop].low)

    def answer(action: Any) -> Any:
        def one(state: Any, _: Any) -> tuple[Any, Any]:
            state, step = environment.step(parameters, state, action, key)
            return state, step.final_obs[measured]

        return jax.lax.scan(one, state, None, length=min(steps, spec.horizon // 2 - 1))[1]

    moved = answer(held.at[loop].add(size)) - answer(held)
    response = np.concatenate([[0.0], np.asarray(jnp.asarray(moved) / size, float)])
    return margins_of_response(response, gains, spec.dt)


def margins_of_response(
    response: np.ndarray, gains: PIDGains, dt: float, points: int = 8000
) -> tuple[float, float]:
    """Peak sensitivity and gain margin around a step response, whose last slope goes on.

    Infinite and one if the closed loop, simulated, grows.
    """
    impulse = np.diff(response, prepend=0.0)
    w = np.geomspace(1e-4, np.pi, points)
    z = np.exp(1j * w)
    powers = np.exp(-1j * w[:, None] * np.arange(len(impulse))[None])
    plant = powers @ impulse
    tail = impulse[-1] if abs(impulse[-1]) * len(impulse) > 0.05 * abs(response[-1]) else 0.0
    plant = plant + tail * z ** -float(len(impulse)) / (1 - 1 / z)
    weight = dt / (gains.tau + dt)
    rise = 1 - 1 / z
    controller = gains.kp + gains.ki * dt / rise
    controller = controller + gains.kd * weight * rise / dt / (1 - (1 - weight) / z)
    loop = plant * controller
    # The loop is stable if L turns around -1 as the integrals ask and no more (Nyquist).
    turns = np.sum(np.angle((1 + loop[1:]) / (1 + loop[:-1])))
    integrals = 1 + (tail != 0)
    if abs(turns - integrals * np.pi / 2) > 0.5:
        return np.inf, 1.0
    at = np.flatnonzero((loop.imag[1:] >= 0) & (loop.imag[:-1] < 0) & (loop.real[1:] < 0))
    factors = -1 / loop.real[at]
    factors = factors[factors > 1]
    return float(np.max(1 / np.abs(1 + loop))), float(factors.min()) if len(factors) else np.inf


if __name__ == "__main__":
    raise SystemExit(main())
