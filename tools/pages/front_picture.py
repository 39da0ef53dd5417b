"""Make the picture of the README: one batch of the demo, before and after, with its verdict.

Usage:
    python -m hatch run python tools/pages/front_picture.py RUN [OUT]

RUN is a run directory of `hatch run demo`; OUT is docs/pages/images/demo.png by default. Every
number in the picture is read from the run.
"""

import argparse
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from neorl_train.judging import read_evaluation, read_verdict

matplotlib.use("Agg")
from matplotlib import pyplot

ROOT = Path(__file__).resolve().parents[2]
AFTER, BEFORE, LIMIT = "#0b6fa4", "#6b7280", "#b4232f"
PANELS = (
    ("obs", "obs", "T_R", "Reactor temperature [°C]"),
    ("action", "applied", "feed", "Monomer feed [t/h]"),
)
"""Kind of a channel of the reactor, its array in a trace, its name, and a title."""
KELVIN, KG = 273.15, 1e-3


def picture(run: Path) -> Any:
    """A figure of 10 by 4.6 inches: the verdict in words, and two trends with their limits."""
    evaluation, verdict = read_evaluation(run), read_verdict(run)
    tables, dt = evaluation.tables, evaluation.tables.spec.dt / 60
    typical = {trace.policy: trace for trace in evaluation.traces if trace.label == "typical"}
    after, before = typical[tables.candidate], typical[tables.reference]
    bands = {band.channel: (band.low, band.high) for band in evaluation.bands}
    pyplot.rcParams.update({"font.family": "DejaVu Sans", "font.size": 12})
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4.6), dpi=140)
    for panel, (kind, array, name, title) in zip(axes, PANELS, strict=True):
        channels = [channel.name for channel in getattr(tables.spec, kind)]
        index = channels.index(name)
        scale = (lambda y: y - KELVIN) if kind == "obs" else (lambda y: y * KG)
        for trace, colour, width in ((before, BEFORE, 1.6), (after, AFTER, 2.4)):
            y = scale(getattr(trace, array)[:, index])
            time = np.arange(len(y)) * dt
            panel.plot(time, y, color=colour, lw=width, drawstyle="steps-post")
            panel.plot(time[-1], y[-1], "o", color=colour, ms=6)
        for limit in bands.get(name, ()):
            panel.axhline(scale(limit), color=LIMIT, lw=1.4)
        if name in bands:
            low, high = (float(scale(limit)) for limit in bands[name])
            panel.set_ylim(low - 0.8, high + 0.8)
            panel.text(0, high + 0.1, "limits", color=LIMIT, va="bottom")
        panel.set_title(title, loc="left", fontsize=13)
        panel.set_xlabel("minutes of one batch")
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="#e5e7eb")
        panel.set_axisbelow(True)
    ends = [len(trace.reward) * dt for trace in (before, after)]
    axes[1].text(ends[0] - 2, 17, "today's PID", color=BEFORE, ha="right", fontsize=12)
    axes[1].text(2, 22.5, "the same PID, retuned\nfrom its log", color=AFTER, va="top", fontsize=12)
    row = tables.row(tables.candidate, guarded=True)
    assert row.difference is not None  # every candidate of the demo is compared
    broken = round((1 - row.satisfied.value) * row.n_episodes)
    figure.suptitle(
        f"{verdict.answer.upper()}   {row.difference.value:.1f} points more per batch; "
        f"a limit broken in {broken} of {row.n_episodes} batches",
        x=0.012,
        ha="left",
        fontsize=15,
        fontweight="bold",
        color=AFTER,
    )
    figure.text(
        0.012,
        0.865,
        f"This typical batch is ready after {ends[1]:.0f} instead of {ends[0]:.0f} minutes.",
        fontsize=12,
    )
    figure.tight_layout(rect=(0, 0, 1, 0.93))
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the picture of the README.")
    parser.add_argument("run", type=Path, help="a run directory of `hatch run demo`")
    default = ROOT / "docs/pages/images/demo.png"
    parser.add_argument("out", type=Path, nargs="?", default=default)
    options = parser.parse_args()
    picture(options.run).savefig(options.out)
    print(f"{options.out}: {options.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
