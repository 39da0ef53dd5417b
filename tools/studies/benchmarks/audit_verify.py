"""How fast an audit log is verified, beside plain SHA-256 over the same bytes.

A log of a loop of three measurements and two actuators, about 600 bytes a period. Processor time
of a record on one core, in turn: ``verify_chain`` over the whole log, which reads, splits, links
and numbers every record; the same for the links alone, one SHA-256 of the last hash and the record;
and one SHA-256 over the files as they lie. The last two are floors: no check of a chain hashes
less. The promise is 100,000 records a second.

    python tools/studies/benchmarks/audit_verify.py
"""

import hashlib
import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from _rounds import interleaved, machine, on_one_core, pair_arguments, summary, write

RECORDS, PROMISED = 60_000, 100_000
BLOCK = 2**20


def main() -> int:
    """Measures and writes; 1 if the promised rate is missed."""
    arguments = pair_arguments(__doc__, "audit_verify")
    on_one_core(arguments.core)
    from neorl_deploy.audit import verify_chain

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = write_log(folder)
        variants = {
            "verify_chain": lambda: verify_chain(folder) and None,
            "links alone": lambda: links(files),
            "plain SHA-256": lambda: plain(files),
        }
        times = interleaved(variants, RECORDS, arguments.rounds)
        size = sum(path.stat().st_size for path in files)
    each = {
        floor: [a / b for a, b in zip(times["verify_chain"], times[floor], strict=True)]
        for floor in ("links alone", "plain SHA-256")
    }
    rate = 1e6 / statistics.median(times["verify_chain"])
    result = {
        "benchmark": "audit_verify",
        "command": f"python tools/studies/benchmarks/audit_verify.py {' '.join(sys.argv[1:])}".strip(),
        "unit": "microseconds of CPU time a record",
        "records": RECORDS,
        "bytes a record": size / RECORDS,
        "records a second": rate,
        "promised records a second": PROMISED,
        "variants": {name: summary(rounds) for name, rounds in times.items()},
        "ratios": {f"verify_chain / {name}": summary(ratios) for name, ratios in each.items()},
        **machine(("numpy",)),
    }
    write(arguments.out, result)
    print(f"{rate:,.0f} records a second; a year at one second: {365 * 86_400 / rate / 60:.1f} min")
    for name, ratios in each.items():
        print(f"{statistics.median(ratios):.2f} times the time of {name}")
    return 0 if rate >= PROMISED else 1


def write_log(folder: Path) -> list[Path]:
    """Writes the log, and returns its files."""
    from neorl_deploy.audit import AuditLog

    log = AuditLog(folder, lambda: {"bundle": "sha256:" + 64 * "0"})
    for number in range(RECORDS):
        log.append(period(number))
    log.close()
    return sorted(folder.glob("audit-*.jsonl"))


def period(number: int) -> dict[str, Any]:
    """A period in the closed loop, as a loop records it, with digits of full length."""
    swing = [math.sin(0.01 * number + i) for i in range(5)]
    return {
        "kind": "cycle",
        "number": number,
        "monotonic": 1000.0 + number + 1e-4 * swing[0],
        "wall": 1.7e9 + number + 1e-4 * swing[0],
        "mode": "closed loop",
        "before": "closed loop",
        "reason": "no fault and no alarm",
        "obs": [1.0 + 0.1 * swing[0], 330.0 + swing[1], 3.0 + 0.1 * swing[2]],
        "ages": [0.41 + 0.01 * swing[0], 0.42 + 0.01 * swing[1], 0.43 + 0.01 * swing[2]],
        "faults": {},
        "received": [40.0 + swing[3], 300.0 + swing[4]],
        "taking_over": False,
        "action": [40.1 + swing[3], 300.1 + swing[4]],
        "flags": 0,
        "intervention": [0.001 * swing[3], 0.0],
        "limits": [0, 0],
        "alarms": 0,
        "planned": {"ns=2;s=LC-101.OP": 40.1 + swing[3], "ns=2;s=TC-101.SP": 300.1 + swing[4]},
        "notes": [],
        "carry": None,
    }


def links(files: list[Path]) -> None:
    """The hash of every record and the hash before it, and nothing else of a check."""
    before = b""
    for path in files:
        with path.open("rb") as file:
            for line in file:
                before = hashlib.sha256(before + line[65:-1]).digest()


def plain(files: list[Path]) -> None:
    """One hash of every byte."""
    whole = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                whole.update(block)


if __name__ == "__main__":
    raise SystemExit(main())
