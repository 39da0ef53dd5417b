"""Speed of the learners beside CORL's own classes, d3rlpy and unifloral, in one run on one device.

Two sizes: industrial (12 observations, 3 actions, layers of 64, batches of 64) and that of D4RL
(17, 6, layers of 256, batches of 256), 100,000 random rows, float32. One process a contender, each
pinned to the same core with one thread, takes its turn in every round; the figure is the median
over rounds of processor time a critic gradient step (one of the actor where there is no critic),
the ratio the peer's time over ours in the same round: above 1, we are faster; beside it stands its
95 % interval, from rounds drawn anew. Rows are drawn inside the timing by everybody's own sampler;
imports, compilation and the first call are not.

Peers' update code is imported, not rewritten. CORL's and unifloral's layers, whose width of 256 is
in their code, are of the size asked for; all have the depth of CORL (three hidden layers in AWAC,
CQL, SAC-N, EDAC and ReBRAC), ten critics in SAC-N and EDAC, ten samples of each kind and no
Lagrange multiplier in CQL. CORL reads its losses every step, d3rlpy keeps metrics, unifloral
normalises observations in its networks. Ours is the chunk of the training loop, which draws its
batches ahead, without checkpoints and reports (`training_loop.py` measures those). Peers that are
missing are named in the result. On a GPU (``--device gpu``) the figure is wall time, since the host
waits, nobody is pinned to a core, and all multiply float32 exactly, which is PyTorch's usual way
there and not JAX's. The index's torch holds much for accelerators; the one for a
processor alone does as well (`UV_FIND_LINKS` to a folder that has it, or `UV_TORCH_BACKEND=cpu`):

    git clone https://github.com/corl-team/CORL build/CORL
    git -C build/CORL checkout eeeeef2671235fcce3a3eb255576a207d78840e6
    git clone https://github.com/EmptyJackson/unifloral build/unifloral
    git -C build/unifloral checkout f2dc127
    hatch run benchmark-learners:run
    hatch run benchmark-learners:run --only td3_bc --size industrial --rounds 3 --out /tmp/l.json
    python tools/studies/benchmarks/learners.py --stored     the ratios of the rounds on record, once more
    python tools/studies/benchmarks/learners.py --device gpu --out /tmp/gpu.json    JAX and PyTorch see it
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from _learner_peers import LEARNERS, PEERS, SIZES, contender
from _rounds import MAX_SPREAD, RESULTS, machine, median_interval, on_one_core, summary, write

VERSIONS = ("jax", "jaxlib", "numpy", "torch", "d3rlpy", "flax", "optax", "distrax")
UNITS = {
    "cpu": "microseconds of processor time a critic gradient step, one core",
    "gpu": "microseconds of wall time a critic gradient step, one GPU",
}
HERE = Path(__file__).resolve().parent


def main() -> int:
    """Runs all cases and writes the raw rounds; 0 if no contender spreads too far."""
    arguments = _arguments()
    if arguments.stored:
        return _again(arguments.out)
    if arguments.serve:
        if arguments.device == "cpu":
            on_one_core(arguments.core)
        return _serve(arguments)
    sizes = [arguments.size] if arguments.size else [*SIZES]
    learners = [arguments.only] if arguments.only else [*LEARNERS]
    cases = [(size, learner) for size in sizes for learner in learners]
    processes = {peer: _start(peer, arguments) for peer in PEERS}
    try:
        rows, missing = _measured(processes, cases, arguments)
    finally:
        for process in processes.values():
            process.kill()
    result = {
        "benchmark": "learners",
        "command": "python tools/studies/benchmarks/learners.py " + " ".join(sys.argv[1:]),
        "unit": UNITS[arguments.device],
        "device": _device_name(arguments.device),
        "sizes": SIZES,
        "not_compared": missing,
        "cases": rows,
        **machine(VERSIONS),
    }
    write(arguments.out, result)
    return _report(rows, missing)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of every contender (5)")
    parser.add_argument("--least", type=float, default=0.5, help="seconds of a round (0.5)")
    parser.add_argument("--core", type=int, default=0, help="the core to pin to (0)")
    parser.add_argument("--only", choices=LEARNERS, help="one learner")
    parser.add_argument("--size", choices=SIZES, help="one size")
    parser.add_argument("--corl", type=Path, default=Path("build/CORL"), help="checkout of CORL")
    parser.add_argument("--unifloral", type=Path, default=Path("build/unifloral"))
    parser.add_argument("--device", choices=UNITS, default="cpu", help="where all run (cpu)")
    parser.add_argument("--out", type=Path, help="learners.json; to be named for a GPU")
    parser.add_argument("--stored", action="store_true", help="ratios of the rounds in --out")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.device == "gpu" and not arguments.out:
        parser.error("name a file with --out: the stored result is that of a processor")
    arguments.out = arguments.out or RESULTS / "learners.json"
    return arguments


def _device_name(device: str) -> str:
    """The model of the GPU; of a processor the facts of the machine say it."""
    if device == "cpu":
        return "one core"
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()


def _start(peer: str, arguments: argparse.Namespace) -> subprocess.Popen:
    options = ["--core", str(arguments.core), "--least", str(arguments.least)]
    options += ["--corl", str(arguments.corl), "--unifloral", str(arguments.unifloral)]
    options += ["--device", arguments.device]
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")
    settings = {
        "cpu": dict.fromkeys(threads, "1"),
        # Contenders share the memory of a GPU, so that none may take most of it in advance.
        "gpu": {
            "JAX_DEFAULT_MATMUL_PRECISION": "highest",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        },
    }[arguments.device]
    return subprocess.Popen(
        [sys.executable, str(HERE / "learners.py"), "--serve", peer, *options],
        env=os.environ | settings,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _serve(arguments: argparse.Namespace) -> int:
    """The life of one contender: builds what it is asked for, then times a round of it."""
    import time

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Peers print; only answers go where answers are read.
    built: dict[str, Any] = {}
    clock = time.process_time if arguments.device == "cpu" else time.perf_counter
    for line in sys.stdin:
        size, learner = line.split()
        try:
            if line not in built:
                work, steps = contender(arguments.serve, learner, SIZES[size], arguments)
                work()
                work()
                built = {line: (work, steps)}
            work, steps = built[line]
            calls, start = 0, clock()
            while not calls or clock() - start < arguments.least:
                work()
                calls += 1
            spent = 1e6 * (clock() - start) / (calls * steps)
            answers.write(json.dumps({"spent": spent}) + "\n")
        except Exception as error:  # The others are still worth their time.
            answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"[:300]}) + "\n")
    return 0


def _measured(
    processes: dict[str, subprocess.Popen], cases: list[tuple[str, str]], arguments: Any
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    rows, missing = [], {}
    for size, learner in cases:
        times: dict[str, list[float]] = {}
        contenders = [peer for peer in processes if peer in ("ours", *LEARNERS[learner])]
        for _ in range(arguments.rounds):
            for peer in contenders:
                if f"{peer} {learner} {size}" in missing:
                    continue
                answer = _answer(processes[peer], size, learner)
                if "error" in answer:
                    missing[f"{peer} {learner} {size}"] = answer["error"]
                else:
                    times.setdefault(peer, []).append(answer["spent"])
        row: dict[str, Any] = {"size": size, "learner": learner}
        row["times"] = {peer: summary(rounds) for peer, rounds in times.items()}
        rows.append(_compared(row))
    return rows, missing


def _compared(row: dict[str, Any]) -> dict[str, Any]:
    """A case with the ratio to every peer and its interval, which are printed."""
    times = {peer: one["rounds"] for peer, one in row["times"].items()}
    ours = times.get("ours", [])
    each = {
        peer: [a / b for a, b in zip(rounds, ours, strict=True)]
        for peer, rounds in times.items()
        if peer != "ours" and len(rounds) == len(ours)
    }
    row["ratios"] = {peer: statistics.median(ratios) for peer, ratios in each.items()}
    row["intervals"] = {peer: median_interval(ratios) for peer, ratios in each.items()}
    shown = ", ".join(f"{p} {statistics.median(t):.0f} us" for p, t in times.items())
    ratios = ", ".join(
        f"{peer} {row['ratios'][peer]:.2f} [{low:.2f}, {high:.2f}]"
        for peer, (low, high) in row["intervals"].items()
    )
    print(f"{row['size']}, {row['learner']}: {shown}; ratio to {ratios}", flush=True)
    return row


def _again(path: Path) -> int:
    result = json.loads(path.read_text())
    result["cases"] = [_compared(row) for row in result["cases"]]
    write(path, result)
    return _report(result["cases"], result["not_compared"])


def _answer(process: subprocess.Popen, size: str, learner: str) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{size} {learner}\n")
    process.stdin.flush()
    line = process.stdout.readline()
    return json.loads(line) if line else {"error": f"the process ended with {process.wait()}"}


def _report(rows: list[dict[str, Any]], missing: dict[str, str]) -> int:
    for name, reason in missing.items():
        print(f"not compared: {name}: {reason}")
    wide = [
        f"{row['size']}, {row['learner']}, {peer}: max/min is {times['spread']:.2f}"
        for row in rows
        for peer, times in row["times"].items()
        if times["spread"] > MAX_SPREAD
    ]
    for failure in wide:
        print(f"FAILED {failure}, over {MAX_SPREAD}")
    return 1 if wide or any(name.startswith("ours") for name in missing) else 0


if __name__ == "__main__":
    raise SystemExit(main())
