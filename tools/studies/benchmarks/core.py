"""Core's formulas beside those of others: returns and losses, statistics, robust aggregation.

Every case is compiled, warm and compared before it is timed; ours and the peer's take turns in one
process on one core with one thread. A time is CPU time of a call, the figure the median over the
rounds; the ratio is the peer's time over ours in the same round: below 1, we are behind. Growth is
the exponent of the size between the two larger ones. Memory is what the compiled program asks for
beside its arguments and results. Peers that are not installed are named in the result. In an
environment of its own, whose versions are in the result:

    hatch run benchmark-core:run
    hatch run benchmark-core:run --only losses --rounds 9
    hatch run benchmark-core:run --tiny --out /tmp/core.json    that it runs, no figures
"""

import argparse
import importlib
import math
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import _core_learning
import _core_statistics
from _core_learning import Case
from _rounds import MAX_SPREAD, RESULTS, interleaved, machine, on_one_core, summary, write

VERSIONS = ("jax", "jaxlib", "numpy", "scipy", "optax", "rlax", "rliable", "flwr")
LEVEL = 0.95
"""A ratio below it is behind: rounds of equal programs differ by as much."""


def main() -> int:
    """Runs all cases and writes them; 0 if nothing disagrees and no variant spreads too far."""
    arguments = _arguments()
    on_one_core(arguments.core)
    missing, rows, failures = {}, [], []
    for case in (*_core_learning.cases(), *_core_statistics.cases()):
        if arguments.only and arguments.only not in (case.peer, case.name):
            continue
        reason = _missing(case.peer)
        if reason:
            missing[case.peer] = reason
            continue
        try:
            row = _run(case, arguments)
        except Exception as error:  # The others are still worth their time.
            failures.append(f"{case.name}: {type(error).__name__}: {error}")
            continue
        failures += _failures(row, arguments.tiny)
        rows.append(row)
    memory = [] if arguments.only else _memory(arguments.tiny)
    result = {
        "benchmark": "core",
        "command": "python tools/studies/benchmarks/core.py " + " ".join(sys.argv[1:]),
        "unit": "microseconds of CPU time a call",
        "not_installed": missing,
        "behind": [f"{r['name']} at {s}" for r in rows for s in r["behind"]],
        "cases": rows,
        "memory": memory,
        **machine(VERSIONS),
    }
    write(arguments.out, result)
    for peer, reason in missing.items():
        print(f"not compared with {peer}: {reason}")
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9, help="rounds of every variant (9)")
    parser.add_argument("--least", type=float, default=0.1, help="seconds of a round (0.1)")
    parser.add_argument("--core", type=int, default=0, help="the core to pin to (0)")
    parser.add_argument("--only", help="a case or a peer")
    parser.add_argument("--tiny", action="store_true", help="one round of the smallest size")
    parser.add_argument("--out", type=Path, default=RESULTS / "core.json")
    return parser.parse_args()


def _missing(peer: str) -> str:
    """Why a peer cannot be used, or nothing."""
    try:
        importlib.import_module(peer)
    except Exception as error:  # Whatever an import of others may raise.
        return f"{type(error).__name__}: {error}"
    return ""


def _run(case: Case, arguments: argparse.Namespace) -> dict[str, Any]:
    sizes = case.sizes[:1] if arguments.tiny else case.sizes
    rounds, least = (1, 0.0) if arguments.tiny else (arguments.rounds, arguments.least)
    by_size, behind = {}, []
    for size in sizes:
        variants = case.build(size)
        apart = _apart(variants["ours"](), variants[case.peer]())
        times = interleaved(variants, 1, rounds, least)
        each = [a / b for a, b in zip(times[case.peer], times["ours"], strict=True)]
        ratio = statistics.median(each)
        behind += [size] if ratio < LEVEL else []
        by_size[size] = {
            "variants": {variant: summary(taken) for variant, taken in times.items()},
            "ratio": summary(each),
            "apart": apart,
        }
        ours = statistics.median(times["ours"])
        print(f"{case.name}, {size} {case.unit}: {ours:.1f} us, {case.peer} / ours = {ratio:.2f}")
    return {
        "name": case.name,
        "peer": case.peer,
        "unit": case.unit,
        "rtol": case.rtol,
        "sizes": by_size,
        "behind": behind,
        "growth": _growth({size: by_size[size]["variants"]["ours"]["median"] for size in sizes}),
    }


def _failures(row: dict[str, Any], tiny: bool) -> list[str]:
    """Results that differ, and, where times count, rounds that spread too far."""
    failures = []
    for size, measured in row["sizes"].items():
        where = f"{row['name']} at {size}"
        if not measured["apart"] <= row["rtol"]:
            failures.append(f"{where}: the results differ by {measured['apart']:.2e}")
        for variant, taken in measured["variants"].items():
            if not tiny and taken["spread"] > MAX_SPREAD:
                failures.append(f"{where}, {variant}: max/min is {taken['spread']:.2f}")
    return failures


def _apart(ours: Any, theirs: Any) -> float:
    """The largest difference of two results, as a share of the largest number."""
    import jax
    import numpy as np

    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    shares = [0.0]
    for left, right in pairs:
        a, b = np.asarray(left, np.float64), np.asarray(right, np.float64)
        shares.append(float(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-30)))
    return max(shares)


def _growth(values: dict[int, float]) -> float | None:
    """The exponent of the size between the two largest."""
    if len(values) < 2:
        return None
    (small, low), (large, high) = sorted(values.items())[-2:]
    return math.log(max(high, 1) / max(low, 1)) / math.log(large / small)


def _memory(tiny: bool) -> list[dict[str, Any]]:
    """Bytes beside arguments and results of the programs that draw many times from a log."""
    programs: dict[str, tuple[Callable[[int], Any], tuple[int, ...]]] = {
        "bootstrap of a mean, percentile, 2000 draws": (
            partial(_bootstrap, "percentile"),
            (1_000, 100_000),
        ),
        "bootstrap of a mean, BCa, 2000 draws": (partial(_bootstrap, "bca"), (1_000, 100_000)),
    }
    rows = []
    for name, (build, sizes) in programs.items():
        memory = {}
        for size in sizes[:1] if tiny else sizes:
            analysis = build(size).compile().memory_analysis()
            memory[size] = {
                "data": analysis.argument_size_in_bytes,
                "beside": analysis.temp_size_in_bytes,
            }
            print(f"{name}: {size} take {memory[size]['beside'] / 1e6:.1f} MB beside the data")
        growth = _growth({size: each["beside"] for size, each in memory.items()})
        rows.append({"name": name, "bytes": memory, "growth": growth})
    return rows


def _bootstrap(method: Literal["percentile", "bca"], samples: int) -> Any:
    import jax
    import jax.numpy as jnp

    from neorl_core.statistics import bootstrap_interval

    interval = partial(bootstrap_interval, method=method)
    return jax.jit(interval).lower(jnp.arange(float(samples)), jax.random.key(0))


if __name__ == "__main__":
    sys.exit(main())
