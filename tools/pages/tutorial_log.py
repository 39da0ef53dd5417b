"""Make the export of the tutorial from a CSV to an answer, as a historian in Europe writes it.

Usage:
    python -m hatch run python tools/pages/tutorial_log.py [OUT]

OUT is docs/pages/tutorials/reactor.csv.gz by default. The plant is CSTR-v0 under its PI, with the
moves of its operators: 200 shifts of 25 minutes, ten minutes apart.
"""

import argparse
import datetime
import gzip
from pathlib import Path

import jax
import numpy as np

from neorl_envs import Dataset, collect_log, make
from neorl_envs.recording import quality

ROOT = Path(__file__).resolve().parents[2]
STEPS, SEED, PAUSE = 12_000, 7, 600
BEGIN = datetime.datetime(2026, 3, 2, 6, 0)
HEAD = "Zeit;AIC-201.PV [mol/L];AIC-201.SP [mol/L];AIC-201.OP [K];TI-202.PV [K]"


def lines(dataset: Dataset) -> list[str]:
    """The rows of the export; each has the measurement and the output of the same time."""
    names = [channel.name for channel in dataset.spec.obs]
    rows = dataset.transitions
    concentration, temperature, setpoint = (
        np.asarray(rows.obs[:, names.index(name)]) for name in ("C_A", "T", "C_A_SP")
    )
    assert rows.truncated is not None  # a collected log has whole episodes
    ended = np.asarray(rows.terminated) | np.asarray(rows.truncated)
    seconds = np.arange(len(ended)) * dataset.spec.dt
    seconds[1:] += PAUSE * np.cumsum(ended)[:-1]
    text = [HEAD]
    for i, at in enumerate(seconds):
        stamp = BEGIN + datetime.timedelta(seconds=float(at))
        values = (
            f"{concentration[i]:.4f}",
            f"{setpoint[i]:.3f}",
            f"{float(rows.action[i, 0]):.3f}",
            f"{temperature[i]:.2f}",
        )
        text.append(f"{stamp:%d.%m.%Y %H:%M:%S};" + ";".join(values).replace(".", ","))
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the export of the tutorial.")
    default = ROOT / "docs/pages/tutorials/reactor.csv.gz"
    parser.add_argument("out", type=Path, nargs="?", default=default)
    options = parser.parse_args()
    plant = make("CSTR-v0")
    policies, plan = quality(plant, "medium")
    log = collect_log(plant, policies, plan=plan, n_steps=STEPS, key=jax.random.key(SEED))
    text = "\n".join(lines(log)) + "\n"
    # Without a time in its head the file is the same each time.
    options.out.write_bytes(gzip.compress(text.encode("cp1252"), mtime=0))
    print(f"{options.out}: {options.out.stat().st_size} bytes, {len(log.transitions.reward)} rows")


if __name__ == "__main__":
    main()
