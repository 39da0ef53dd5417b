"""Compare a benchmark with its stored result, and fail where it has become slower.

Usage:
    python tools/regression.py training_loop                 run it again and compare
    python tools/regression.py training_loop --fresh NEW.json
    python tools/regression.py optimiser --tolerance 0.1

Machines differ, so what is compared is not seconds but the cost beside the peer that was measured
in the same run: a variant's cost a step over that of its peer, round by round, and how much larger
the median of these ratios is than in ``tools/studies/benchmarks/results/NAME.json``. A variant
named ``ours`` is compared with each of the others; elsewhere the peer is one of `PEERS`. The
interval comes from drawing the rounds of both results anew. A case fails if it is more than the
tolerance slower and the interval leaves no doubt that it is slower at all. Benchmarks run alone on
a quiet machine.

Exit codes: 0 no case is slower, 1 one is, 2 the results cannot be compared.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "tools/studies/benchmarks/results"
OURS = "ours"
PEERS = ("bare", "plain", "bare optax", "one", "in turn", "queued")
DERIVED = ("ratio", "ratios")
TOLERANCE, LEVEL, DRAWS = 0.2, 0.95, 4000


class Change(NamedTuple):
    """How much more one variant costs beside its peer than it did.

    Attributes:
        case: Case and variant.
        factor: Median ratio now over the stored one; 2 is twice as slow.
        low: Lower end of its interval.
        high: Upper end.
    """

    case: str
    factor: float
    low: float
    high: float

    def is_slower(self, tolerance: float) -> bool:
        """Whether it is slower by more than the tolerance, and slower without doubt."""
        return self.factor > 1 + tolerance and self.low > 1


def main(arguments: list[str] | None = None) -> int:
    """Compares and prints a line for each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="name of the benchmark, such as training_loop")
    parser.add_argument("--fresh", type=Path, help="result to compare; by default it is measured")
    parser.add_argument("--stored", type=Path, help="result to compare with (the committed one)")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        help=f"allowed slowdown, as a part of the stored cost ({TOLERANCE})",
    )
    options = parser.parse_args(arguments)
    try:
        stored = read(options.stored or RESULTS / f"{options.name}.json")
        fresh = read(options.fresh) if options.fresh else measured(stored)
        changes = compared(stored, fresh)
    except ValueError as error:
        print(f"regression: {error}", file=sys.stderr)
        return 2
    slower = [change for change in changes if change.is_slower(options.tolerance)]
    for change in changes:
        mark = "SLOWER" if change in slower else "ok"
        print(
            f"{mark:<7} {change.case}: cost beside its peer x {change.factor:.3f} "
            f"[{change.low:.3f}, {change.high:.3f}]"
        )
    return int(bool(slower))


def read(path: Path) -> dict[str, Any]:
    """A stored result.

    Raises:
        ValueError: If there is none, or it is damaged.
    """
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        known = ", ".join(sorted(one.stem for one in RESULTS.glob("*.json")))
        raise ValueError(f"{path}: no such result; there are {known}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is damaged: {error}") from None


def measured(stored: dict[str, Any]) -> dict[str, Any]:
    """The same benchmark with the same options, run again.

    Raises:
        ValueError: If the result does not say how it was made, or the benchmark fails.
    """
    command = shlex.split(stored.get("command", ""))
    if command[:1] != ["python"]:
        raise ValueError("the stored result does not say its command; give --fresh")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "fresh.json"
        completed = subprocess.run(
            [sys.executable, *command[1:], "--out", str(out)], cwd=ROOT, check=False
        )
        if not out.is_file():
            raise ValueError(
                f"{shlex.join(command)} ended with {completed.returncode} and no result"
            )
        return read(out)


def compared(stored: dict[str, Any], fresh: dict[str, Any]) -> list[Change]:
    """Every variant beside its peer, now and then.

    Raises:
        ValueError: If the benchmarks, their cases or their units differ, or nothing is comparable.
    """
    for field in ("benchmark", "case", "unit"):
        if stored.get(field) != fresh.get(field):
            raise ValueError(f"{field} is {fresh.get(field)!r}, stored {stored.get(field)!r}")
    rate = "per second" in str(stored.get("unit", ""))
    before, now = (dict(ratios(result, rate)) for result in (stored, fresh))
    if not before:
        raise ValueError("the stored result has no variants with rounds beside a peer")
    missing = sorted(set(before) - set(now))
    if missing:
        raise ValueError(f"the new result lacks {', '.join(missing)}")
    return [change(case, before[case], now[case]) for case in before]


def ratios(result: Any, rate: bool, where: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Cost of every variant over that of its peer, round by round.

    Args:
        result: A result, or a part of it.
        rate: Whether rounds are rates, of which more is better, or times.
        where: Name of the part.
    """
    if isinstance(result, list):
        for part in result:
            yield from ratios(part, rate, f"{where}{_name(part)}")
    if not isinstance(result, dict):
        return
    parts = {name: part for name, part in result.items() if name not in DERIVED}
    rounds = {
        name: np.asarray(part["rounds"], float)
        for name, part in parts.items()
        if isinstance(part, dict) and isinstance(part.get("rounds"), list)
    }
    for name, peer in _pairs(list(rounds)):
        paired = min(len(rounds[name]), len(rounds[peer]))
        ratio = rounds[name][:paired] / rounds[peer][:paired]
        yield f"{where}{name} / {peer}", 1 / ratio if rate else ratio
    for name, part in parts.items():
        yield from ratios(part, rate, f"{where}{name} ")


def _pairs(variants: list[str]) -> list[tuple[str, str]]:
    """Each variant whose cost matters, and what it is measured beside."""
    if OURS in variants:
        return [(OURS, name) for name in variants if name != OURS]
    peer = next((name for name in PEERS if name in variants), None)
    return [(name, peer) for name in variants if name != peer] if peer else []


def _name(part: Any) -> str:
    """Of a case in a list: its fields that are words."""
    fields = part.items() if isinstance(part, dict) else ()
    return "".join(f"{field} " for _, field in fields if isinstance(field, str))


def change(case: str, before: np.ndarray, now: np.ndarray) -> Change:
    """The factor between the medians, with a percentile interval over the rounds of both."""
    rng = np.random.default_rng(0)
    drawn = [
        np.median(rng.choice(rounds, (DRAWS, len(rounds))), axis=1) for rounds in (now, before)
    ]
    ends = np.quantile(drawn[0] / drawn[1], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Change(case.strip(), float(np.median(now) / np.median(before)), *map(float, ends))


if __name__ == "__main__":
    sys.exit(main())
