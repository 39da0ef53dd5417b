"""Compare the margins that a change sheet promises with those of the true plant.

Usage:
    python tools/studies/tables/loop_promises.py [NAME ...]  every plant with a bank of PIDs
    python tools/studies/tables/loop_promises.py --logs 100

Each plant that has a bank of PIDs as a tuning records ``--logs`` logs under it, with gains changed
at random, ten moves of every setpoint in an episode, and its operators. From each log a model of
every loop is identified and gains are searched, as ``neorl-train loop`` does. The true loop is the
plant's own answer to a step of one output, less its noise, while the other loops run as they do
today. Counted are the proposals whose sheet says Ms at most 2 and gain margin at least 1.7, and how
many of these have both on the plant. Stored in
``tools/studies/benchmarks/results/loop_promises.json``, log by log; a run goes on where it ends.
"""

import argparse
import dataclasses
import functools
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
SETPOINT_STEP, MOVES = 0.03, 10
"""Largest move of a setpoint as a share of the measuring range, and how many an episode has."""
EVENT = 0.25
"""Jump in a row, as a share of the early answer, that is an event of the plant."""


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
        known = done.get(name, {"logs": 0, "loops": []})
        rows = list(known["loops"])
        for seed in range(known["logs"], arguments.logs):
            rows += proposals(environment, banks[0], seed, arguments.steps)
            done[name] = {"logs": seed + 1, "loops": rows}
            if not arguments.quick:
                OUT.write_text(json.dumps(done, indent=1) + "\n")
        said = [row for row in rows if row["said"]]
        kept = sum(row["kept"] for row in said)
        print(
            f"{name}: {len(rows)} loops, {len(said)} proposals, {kept} keep the promise", flush=True
        )
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
    ranges = [environment.spec.obs[measured] for measured in bank.measured]
    plan = environment.operator_plan()._replace(
        setpoint_step=SETPOINT_STEP
        * np.asarray([one.high - one.low for one in ranges], np.float32),
        setpoint_every=np.float32(environment.spec.horizon / MOVES),
    )
    key = jax.random.key(seed)
    log = collect_log(environment, {"today": bank}, n_steps=steps, key=key, plan=plan, spread=0.0)
    found = []
    for loop, measured in enumerate(bank.measured):
        today = PIDGains(*(float(leaf[loop]) for leaf in (bank.kp, bank.ki, bank.kd, bank.tau)))
        model = loop_model(loop_record(environment, log, bank, loop))
        row: dict[str, Any] = {"loop": environment.spec.action[loop].name, "seed": seed}
        if model.curve is not None:
            row["gain_depends_on"] = model.curve.of
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
        setpoint = np.asarray(log.setpoint)[:, loop].astype(float)
    manual = np.zeros(len(y), bool) if log.mode is None else np.asarray(log.mode)[:, loop]
    return LoopRecord(
        spec.action[loop].name, y, u, setpoint, ~manual, np.cumsum(segment), spec.dt,
        spec.obs[measured].unit, spec.action[loop].unit,
        (spec.obs[measured].low, spec.obs[measured].high),
        (spec.action[loop].low, spec.action[loop].high),
    )  # fmt: skip


def true_margins(
    environment: Any, bank: PID, loop: int, measured: int, gains: PIDGains
) -> tuple[float, float]:
    """Peak sensitivity and gain margin around the plant's own answer to a step of the output.

    Today's bank runs the plant for a quarter of an episode; then one output is held, and in a
    second run moved by a fiftieth of its range, while the other loops go on. The difference of its
    measurement in the two runs, with the same noise, is the step response. It ends with the first
    half of the episode, since a batch has no answer once it is done.
    """
    spec = environment.spec
    channel, one = spec.action[loop], np.arange(len(spec.action)) == loop
    size = 0.02 * (channel.high - channel.low)
    runs = _run_of(environment)
    start = runs(bank, None, np.zeros(len(one), bool), np.zeros(len(one), np.float32))
    output = np.asarray(start[1][0])[-1, loop]
    size = -size if output + size > channel.high else size
    moved, still = (
        np.asarray(runs(bank, start[0], one, np.where(one, output + step, 0).astype(np.float32))
                   [1][1], float)[:, measured]
        for step in (size, 0.0)
    )  # fmt: skip
    response = np.concatenate([[0.0], (moved - still) / size])
    return margins_of_response(without_events(response), gains, spec.dt)


@functools.cache
def _run_of(environment: Any) -> Any:
    """A quarter of an episode with some outputs held, compiled once for all banks and loops."""
    parameters, key = environment.default_params(), jax.random.key(1)

    @jax.jit
    def run(bank: PID, start: Any, held: Any, at: Any) -> tuple[Any, Any]:
        def one(carried: Any, _: Any) -> tuple[Any, Any]:
            state, obs, carry = carried
            carry, action = bank(carry, obs, None)
            action = jnp.where(held, at, action)
            state, step = environment.step(parameters, state, action, key)
            carry = bank.sent(carry, step.applied)
            return (state, step.obs, carry), (step.applied, step.final_obs)

        if start is None:
            start = (*environment.reset(parameters, jax.random.key(0)), bank.initial_carry())
        return jax.lax.scan(one, start, None, length=environment.spec.horizon // 4)

    return run


def without_events(response: np.ndarray) -> np.ndarray:
    """A step response up to the first row at which it jumps long after the step.

    A backwash or a switch of the plant falls into both runs and acts on each a little differently.
    That is no answer to the step. What is left reaches ten rows beyond two thirds of the answer.
    """
    size = np.quantile(np.abs(response), 0.9)
    risen = int(np.argmax(np.abs(response) > 0.63 * size))
    early = np.abs(response[: risen + 10]).max()
    jumps = np.abs(np.diff(response)) > EVENT * early
    late = np.flatnonzero(jumps[risen + 10 :])
    return response[: risen + 11 + late[0]] if len(late) else response


def margins_of_response(
    response: np.ndarray, gains: PIDGains, dt: float, points: int = 8000
) -> tuple[float, float]:
    """Peak sensitivity and gain margin around a step response, whose last slope goes on.

    A slope back to zero does not go on: what comes back settles. Infinite and one if the closed
    loop, simulated, grows.
    """
    impulse = np.diff(response, prepend=0.0)
    w = np.geomspace(1e-4, np.pi, points)
    z = np.exp(1j * w)
    powers = np.exp(-1j * w[:, None] * np.arange(len(impulse))[None])
    plant = powers @ impulse
    goes_on = impulse[-1] * np.sign(response[-1]) * len(impulse) > 0.05 * abs(response[-1])
    tail = impulse[-1] if goes_on else 0.0
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
