"""A sweep over numbers by one program, beside the same sweep with a process for every setting.

Two things are measured. *Forms*: how one program best serves several settings on this machine's
devices; the settings queued one by one on all devices, batched by ``vmap``, or mapped by
``lax.map``; wall time of an update of one setting, in turn, imports and compilation left out.
*Sweeps*: ``neorl-train sweep`` of one grid in new processes: trained together, one after the other
in one process, and each in a process of its own (``--processes 1`` a cell), with compiled programs
kept from a first round that is not counted; wall and processor seconds, and whether the tables are
the same. Run it alone:

    python tools/studies/benchmarks/sweeps/together.py
    python tools/studies/benchmarks/sweeps/together.py --rounds 1 --settings 4
"""

import argparse
import dataclasses
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _rounds import RESULTS, machine, small_case, summary, write

CHUNK = 200
SWEEP = """
[grid]
algorithms.iql.expectile = {values}
[data]
source = "CSTR-v0"
steps = 5000
[training]
algorithms = ["iql"]
seeds = [0, 1]
updates = 2000
chunk = 500
[checkpoints]
interval = 1000
[output]
tracking = false
"""
EACH = """
import sys
from pathlib import Path
from neorl_train import prepare_process
prepare_process()
from neorl_train.studies import read_sweep
from neorl_train.studies._sweep import carry_out, state_of
sweep = read_sweep(Path(sys.argv[1]), Path(sys.argv[2]))
cell = sweep.cells()[int(sys.argv[3])]
assert not carry_out(state_of(sweep.directory, [cell]), sweep.directory)
"""


def main() -> int:
    """Runs all rounds and writes them; 0 if the tables are the same and together is faster."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of every sweep (3)")
    parser.add_argument(
        "--warm", type=int, default=1, help="rounds before that are not counted (1)"
    )
    parser.add_argument("--settings", type=int, default=8, help="settings of a sweep (8)")
    parser.add_argument("--form-rounds", type=int, default=7, help="rounds of every form (7)")
    parser.add_argument("--out", type=Path, default=RESULTS / "sweep_together.json")
    arguments = parser.parse_args()
    sweeps, equal = _sweeps(arguments.settings, arguments.warm, arguments.rounds)
    forms = {name: _forms(name, arguments) for name in ("td3_bc", "iql")}
    ratio = {
        kind: sweeps["a process each"][kind]["median"] / sweeps["together"][kind]["median"]
        for kind in ("wall", "processor")
    }
    result = {
        "benchmark": "sweep_together",
        "command": "python tools/studies/benchmarks/sweeps/together.py " + " ".join(sys.argv[1:]),
        "case": {"settings": arguments.settings, "seeds": 2, "updates": 2000, "plant": "CSTR-v0"},
        "unit": "seconds of a sweep; microseconds of wall time an update of one setting and seed",
        "sweeps": sweeps,
        "process_each_over_together": ratio,
        "tables_equal": equal,
        "forms": forms,
        **machine(),
    }
    write(arguments.out, result)
    for name, times in sweeps.items():
        wall, used = (times[kind]["median"] for kind in ("wall", "processor"))
        print(f"{name}: {wall:.1f} s of wall time, {used:.1f} s of processor time")
    print(f"a process each takes {ratio['processor']:.2f} times the processor time of together")
    print(f"tables equal: {equal}")
    return 0 if equal and ratio["processor"] > 1 else 1


def _sweeps(settings: int, warm: int, rounds: int) -> tuple[dict[str, Any], bool]:
    """Wall and processor seconds of each way, the first ``warm`` rounds of each left out."""
    values = [round(0.5 + 0.4 * (i + 1) / settings, 4) for i in range(settings)]
    times: dict[str, dict[str, list[float]]] = {}
    tables = set()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        file = folder / "sweep.toml"
        file.write_text(SWEEP.format(values=values))
        one = [sys.executable, "-m", "neorl_train", "sweep", str(file), "--output"]
        ways = {
            "together": [[*one, "{out}"]],
            "one after the other": [[*one, "{out}", "--no-together"]],
            "a process each": [
                [sys.executable, "-c", EACH, str(file), "{out}", str(i)] for i in range(settings)
            ],
        }
        for number in range(warm + rounds):
            for name, commands in ways.items():
                out = folder / "runs"
                wall, used = time.perf_counter(), _children()
                for command in commands:
                    subprocess.run(
                        [word.format(out=out) if word == "{out}" else word for word in command],
                        check=True,
                        capture_output=True,
                    )
                spent = {"wall": time.perf_counter() - wall, "processor": _children() - used}
                print(number, name, {kind: round(s, 1) for kind, s in spent.items()}, flush=True)
                if number >= warm:
                    for kind, seconds in spent.items():
                        times.setdefault(name, {}).setdefault(kind, []).append(seconds)
                subprocess.run([*one, str(out)], check=True, capture_output=True)  # its tables
                tables.add((out / "table.csv").read_text())
                shutil.rmtree(out)
    return {
        name: {kind: summary(each) for kind, each in kinds.items()} for name, kinds in times.items()
    }, len(tables) == 1


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _forms(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    os.environ.setdefault("XLA_FLAGS", "")
    from neorl_train import prepare_process

    prepare_process()
    import jax

    ways = {"queued": _queued, "vmap": _vmapped, "map": _mapped}
    calls = {way: make(name, arguments.settings) for way, make in ways.items()}
    times: dict[str, list[float]] = {way: [] for way in ways}
    updates = arguments.settings * 2 * CHUNK
    for number in range(arguments.form_rounds + 1):
        for way, call in calls.items():
            started_at = time.perf_counter()
            jax.block_until_ready(call(number))
            if number:
                times[way].append(1e6 * (time.perf_counter() - started_at) / updates)
    shown = {way: summary(each) for way, each in times.items()}
    print(name, {way: round(one["median"], 1) for way, one in shown.items()}, flush=True)
    return shown


def _learners(name: str, settings: int) -> tuple[list[Any], Any]:
    algorithm, data = small_case(name)
    field = {"iql": "expectile", "td3_bc": "alpha"}[name]
    usual = getattr(algorithm, field)
    values = [usual * (0.8 + 0.4 * i / settings) for i in range(settings)]
    return [dataclasses.replace(algorithm, **{field: value}) for value in values], data


def _queued(name: str, settings: int) -> Any:
    import jax

    from neorl_train.training import offline_seeds

    learners, data = _learners(name, settings)
    programs: dict[Any, Any] = {}
    made = []
    for learner in learners:
        one = offline_seeds(
            learner, data, (0, 1), jax.local_devices(), programs=programs, form="queued"
        )
        one.compile(CHUNK // learner.batches_per_update)
        made.append(one)
    return lambda number: [one.advance() for one in made]


def _vmapped(name: str, settings: int) -> Any:
    import jax

    from neorl_train.training import offline_seeds
    from neorl_train.training._together import Batched

    learners, data = _learners(name, settings)
    groups = []
    for first, device in enumerate(jax.local_devices()):
        group, members = Batched(), []
        for learner in learners[first :: len(jax.local_devices())]:
            member = group.member(offline_seeds(learner, data, (0, 1), [device]))
            member.compile(CHUNK // learner.batches_per_update)
            members.append(member)
        groups.append(members)
    return lambda number: [[one.advance() for one in members] for members in groups]


def _mapped(name: str, settings: int) -> Any:
    import jax
    import jax.numpy as jnp
    import numpy as np

    from neorl_agents.learning import train_chunk
    from neorl_core import as_arrays
    from neorl_train.training import offline_seeds

    learners, data = _learners(name, settings)
    n_updates = CHUNK // learners[0].batches_per_update

    def stacked(trees: Any) -> Any:
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)

    @jax.jit
    def chunk(source: Any, tables: Any, members: Any, first: Any) -> Any:
        def one(member: Any) -> Any:
            learner, training, key = member
            return train_chunk(learner, source, training, tables, first, key, n_updates=n_updates)

        return jax.lax.map(one, members)

    parts = []
    devices = jax.local_devices()
    for first, device in enumerate(devices):
        members, source, tables = [], None, None
        for learner in learners[first :: len(devices)]:
            one = offline_seeds(learner, data, (0, 1), [device]).stack()
            source, tables = one.source, one.tables
            for seed in range(2):
                training = jax.tree.map(lambda x, s=seed: x[s], one.trainings)
                members.append((as_arrays(learner), training, one.keys[seed]))
        parts.append([jax.device_put(stacked(members), device), source, tables])

    def call(number: int) -> Any:
        done = []
        for part in parts:
            members, source, tables = part
            trainings, means = chunk(source, tables, members, np.int32(number * n_updates))
            part[0] = (members[0], trainings, members[2])
            done.append(means)
        return done

    return call


if __name__ == "__main__":
    sys.exit(main())
