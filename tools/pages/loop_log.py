"""Make the export of the page from a log to a change sheet, as a historian in Europe writes it.

Usage:
    python -m hatch run python tools/pages/loop_log.py [OUT]

OUT is docs/pages/how-to/heater.csv.gz by default. The process is a lag of 20 s behind a dead time
of 8 s with a gain of 2 °C per %, under a PI of 0.05 % per °C and 20 s, which is sluggish, for two
hours in which the setpoint moves.
"""

import argparse
import datetime
import gzip
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
ROWS, PERIOD, LAG, DELAY, GAIN = 4000, 2.0, 10, 4, 2.0  # lag and delay in rows
KP, TI = 0.05, 10
BEGIN = datetime.datetime(2026, 3, 2, 6, 0)
HEAD = "Zeit;TIC-101.PV [°C];TIC-101.SP [°C];TIC-101.OP [%]"


def lines() -> list[str]:
    """The rows of the export."""
    rng = np.random.default_rng(0)
    pole, slow = np.exp(-1 / LAG), np.exp(-1 / 60)
    setpoint = np.full(ROWS, 50.0)
    for start in np.sort(rng.integers(0, ROWS, 25)):
        setpoint[start:] = np.round(50 + rng.uniform(-5, 5), 1)
    loads, noise = rng.standard_normal((2, ROWS))
    inside, load, output, before, sent = 0.0, 0.0, 50.0, 0.0, [0.0] * (DELAY + 1)
    text = [HEAD]
    for row in range(ROWS):
        measured = 50 + inside + 0.02 * noise[row]
        error = setpoint[row] - measured
        output += KP * (error - before) + KP / TI * error
        before = error
        load = slow * load + np.sqrt(1 - slow**2) * 0.1 * loads[row]
        sent = [*sent[1:], output - 50 + load]
        inside = pole * inside + (1 - pole) * GAIN * sent[0]
        stamp = BEGIN + datetime.timedelta(seconds=PERIOD * row)
        values = f"{measured:.3f};{setpoint[row]:.1f};{output:.4f}"
        text.append(f"{stamp:%d.%m.%Y %H:%M:%S};" + values.replace(".", ","))
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the export of the page on change sheets.")
    default = ROOT / "docs/pages/how-to/heater.csv.gz"
    parser.add_argument("out", type=Path, nargs="?", default=default)
    options = parser.parse_args()
    text = "\n".join(lines()) + "\n"
    # Without a time in its head the file is the same each time.
    options.out.write_bytes(gzip.compress(text.encode("cp1252"), mtime=0))
    print(f"{options.out}: {options.out.stat().st_size} bytes, {ROWS} rows")


if __name__ == "__main__":
    main()
