"""Readers of logs, datasets, configurations and expressions against random input, for some minutes.

The inputs are those of the daily tests (``test_fuzz.py`` of the dataset formats, ``test_fuzz_logs``
of plant logs), many more of them and each round with another seed. A failure is printed as pytest
prints it, with the input to be kept as an ``@example``; a test that takes more than a minute over
one input is taken for a hang.

    python tools/fuzz_readers.py --minutes 10
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "packages" / "neorl-envs" / "tests"
FILES = (TESTS / "plant_logs" / "test_fuzz_logs.py", TESTS / "ingest" / "test_fuzz.py")
EXAMPLES, HANG_S = 200, 60


def main() -> int:
    """Rounds until the time is over; 0 if none failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first round (0)")
    parser.add_argument("--go-on", action="store_true", help="after a failure")
    options = parser.parse_args()
    end, seed, failed, rounds = time.monotonic() + 60 * options.minutes, options.seed, 0, 0
    while time.monotonic() < end:
        failed += not passes(seed)
        rounds, seed = rounds + 1, seed + 1
        print(f"round {rounds}: {'failures so far' if failed else 'no failure'}", flush=True)
        if failed and not options.go_on:
            break
    print(f"{rounds} rounds of {EXAMPLES} inputs a test, {failed} with failures")
    return int(failed > 0)


def passes(seed: int) -> bool:
    """One round; a process that never ends is a failure."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
    command += [f"--hypothesis-seed={seed}", "-o", f"faulthandler_timeout={HANG_S * 5}"]
    environment = {**os.environ, "NEORL_FUZZ_EXAMPLES": str(EXAMPLES)}
    try:
        completed = subprocess.run(
            [*command, *map(str, FILES)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=HANG_S * EXAMPLES / 10,
        )
    except subprocess.TimeoutExpired as error:
        print(f"seed {seed}: no end after {error.timeout:.0f} s")
        return False
    if completed.returncode:
        print(completed.stdout[-8000:], completed.stderr[-2000:])
    return completed.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
