"""The training loop with records, MLflow, checkpoints and evaluation on, against a bare scan.

Small case: 12 observations, 3 actions, networks of 64x64, batches of 64, 200,000 random rows.
A round of the library is a whole training run of every seed, from the moment its program is
compiled until its last checkpoint and its last record in MLflow are on the disk: metrics and
records of every block, a checkpoint and an evaluation of every policy on 8 starts of the reactor
and on held-out rows every ``--interval`` updates. A round of the peer is the same number of
updates of the same learners by a bare scan, queued on the same devices. Both live in one process
and take turns; the first round of each is dropped, for it imports, compiles and makes the MLflow
database. Sampling is inside the timing of both. Run it alone:

    python tools/studies/benchmarks/training_loop.py
    python tools/studies/benchmarks/training_loop.py --seeds 1 --algorithms iql --rounds 7
"""

import argparse
import contextlib
import io
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from _rounds import MAX_SPREAD, RESULTS, bare_scan, machine, small_case, summary, write

FLOOR = 0.95
BLOCK = 1000


def main() -> int:
    """Runs all rounds and writes them; 0 if the library keeps the wanted share of the rate."""
    arguments = _arguments()
    from neorl_train import prepare_process

    prepare_process()
    cases = {name: _case(name, arguments) for name in arguments.algorithms}
    result = {
        "benchmark": "training_loop",
        "command": "python tools/studies/benchmarks/training_loop.py " + " ".join(sys.argv[1:]),
        "case": {"obs": 12, "act": 3, "hidden": [64, 64], "batch": 64, "block": BLOCK},
        "seeds": arguments.seeds,
        "updates": arguments.updates,
        "interval": arguments.interval,
        "unit": "critic gradient steps per second, all seeds together",
        "floor": FLOOR,
        "cases": cases,
        **machine(),
    }
    write(arguments.out, result)
    return _report(cases)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--algorithms", nargs="+", default=["td3_bc", "iql"])
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each (5)")
    parser.add_argument("--seeds", type=int, default=4, help="seeds trained side by side (4)")
    parser.add_argument("--updates", type=int, default=100_000, help="a round and seed (100000)")
    parser.add_argument("--interval", type=int, default=25_000, help="of checkpoints (25000)")
    parser.add_argument("--out", type=Path, default=RESULTS / "training_loop.json")
    return parser.parse_args()


def _case(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    import jax

    algorithm, data = small_case(name)
    seeds = range(arguments.seeds)
    devices = jax.local_devices()
    peers = [
        bare_scan(algorithm, data, devices[seed % len(devices)], seed, BLOCK) for seed in seeds
    ]
    rates: dict[str, list[float]] = {"bare": [], "library": []}
    with tempfile.TemporaryDirectory() as runs:
        for number in range(arguments.rounds + 1):
            per_second = {
                "bare": _bare_round(peers, arguments),
                "library": _library_round(Path(runs), name, algorithm, data, arguments),
            }
            print(
                name,
                number,
                {variant: f"{rate:.0f}/s" for variant, rate in per_second.items()},
                flush=True,
            )
            if number:
                for variant, rate in per_second.items():
                    rates[variant].append(rate)
    both = {variant: summary(of) for variant, of in rates.items()}
    return {**both, "ratio": both["library"]["median"] / both["bare"]["median"]}


def _bare_round(peers: list[Any], arguments: argparse.Namespace) -> float:
    import jax

    started_at = time.perf_counter()
    for _ in range(arguments.updates // BLOCK):
        states = [work() for work in peers]
    jax.block_until_ready(states)
    return arguments.updates * len(peers) / (time.perf_counter() - started_at)


def _library_round(
    runs: Path, name: str, algorithm: Any, data: Any, arguments: argparse.Namespace
) -> float:
    with contextlib.redirect_stderr(io.StringIO()):
        return _library_run(runs, name, algorithm, data, arguments)


def _library_run(
    folder: Path, name: str, algorithm: Any, data: Any, arguments: argparse.Namespace
) -> float:

    from neorl_train import train
    from neorl_train._job.watcher import RunWatcher
    from neorl_train._process.progress import Reporter, Timings
    from neorl_train.runs import Checkpoints, MlflowTracker, Records, create_run
    from neorl_train.training import Plan

    seeds = tuple(range(arguments.seeds))
    run = create_run(folder, *_described(name))
    records, tracker = Records(run.metrics), MlflowTracker(run)

    class Watcher(RunWatcher):
        started_at = 0.0

        def running(self) -> None:
            self.begun = time.perf_counter()

    watcher = Watcher(
        name,
        seeds,
        arguments.updates,
        records=records,
        reporter=Reporter(),
        tracker=tracker,
        timings=Timings(),
    )
    checkpoints = Checkpoints(
        run.checkpoints(name), identity={}, interval=arguments.interval, keep=2, print_line=print
    )
    train(
        algorithm,
        data,
        seeds,
        Plan(arguments.updates, BLOCK, arguments.interval),
        watcher=watcher,
        checkpoints=checkpoints,
        validate=_validation(data),
    )
    records.close()
    assert not (error := tracker.finish()), error
    return arguments.updates * len(seeds) / (time.perf_counter() - watcher.begun)


def _validation(data: Any) -> Any:
    """Every policy on 8 starts of the reactor and on held-out rows."""
    import jax

    from neorl_envs import make
    from neorl_envs.datasets import dataset_from_columns
    from neorl_train.judging import PolicyValidation

    held_out = dataset_from_columns(data.spec, **_first_rows(data.rows))
    return PolicyValidation(held_out, make("ChemicalReactor-v0"), key=jax.random.key(9), starts=8)


def _first_rows(rows: Any) -> dict[str, Any]:
    names = ("obs", "action", "reward", "cost", "next_obs", "terminated", "truncated")
    return {name: getattr(rows, name)[:2000] for name in names}


def _described(name: str) -> tuple[str, dict[str, Any]]:
    """The least configuration and record that a run directory and the tracker read."""
    from neorl_train.configuration import dump_toml

    training, algorithms = {"algorithms": [name]}, {name: {}}
    config = {"data": {}, "penalty": {}, "training": training, "algorithms": algorithms}
    dataset = {"content_hash": ""}
    # The tracker knows a run by its id: under one that is there already it would copy nothing.
    record = {"id": uuid.uuid4().hex, "config_hash": "", "execution_mode": "", "dataset": dataset}
    return dump_toml(config), record


def _report(cases: dict[str, Any]) -> int:
    failures = []
    for name, case in cases.items():
        for variant in ("bare", "library"):
            of = case[variant]
            print(f"{name} {variant}: min - median - max {of['min']:.0f} - {of['median']:.0f} - "
                  f"{of['max']:.0f} per s")  # fmt: skip
            if of["spread"] > MAX_SPREAD:
                failures.append(
                    f"{name} {variant}: max/min is {of['spread']:.2f}, over {MAX_SPREAD}"
                )
        print(f"{name}: {case['ratio']:.3f} of the bare scan ({FLOOR} wanted)")
        if case["ratio"] < FLOOR:
            failures.append(f"{name}: {case['ratio']:.3f} of the bare scan is below {FLOOR}")
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
