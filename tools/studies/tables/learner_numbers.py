"""The expected numbers of every learner's page from the stored cells, for the build of the site.

Usage:
    python tools/studies/tables/learner_numbers.py  write the times of the learners' index

These times are those that benchmarks/learner_times.py has stored.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from learning_page import (
    OFFICIAL,
    PUBLISHED,
    RESULTS,
    ROOT,
    WITHOUT_PLANT,
    between,
    difference_to_cloning,
    log_name,
    missing,
    over_cloning,
    read_cells,
    read_controllers,
    trips,
    unit_words,
    wins,
)
from neorl_envs import make

PAGES = {
    "awac": ("awac",),
    "bc": ("bc",),
    "cql": ("cql", "cal_ql"),
    "fql": ("fql",),
    "iql": ("iql",),
    "rebrac": ("rebrac",),
    "sac-n-edac": ("sac_n", "edac"),
    "td3-bc": ("td3_bc",),
    "xql": ("xql",),
}
INDEX = ROOT / "docs/pages/learners/index.md"
TIMES = ROOT / "tools/studies/benchmarks/results/learner_times.json"
IN_MODEL = ("mopo", "mobile", "combo", "morel")
"""RAMBO was not measured on the plants' own logs since its adversary has its published strength."""


def main() -> None:
    INDEX.write_text(with_times(INDEX.read_text()))


def with_times(text: str) -> str:
    """The index with the last column of its table of learners as it was measured."""
    times = json.loads(TIMES.read_text())["learners"]

    def timed(match: re.Match[str]) -> str:
        names = re.findall(r"`(\w+)`", match[2])
        cells = [" + ".join(f"{x:.2g}" for x in times.get(name, {}).values()) for name in names]
        return f"{match[1]} {', '.join(cells) if any(cells) else ''} |"

    return re.sub(r"(?m)^(\| (`[^|]+) \| \[.+\|)[^|]*\|$", timed, text)


def section(page: str) -> str:
    """Text and table of one page: a row for each learner and log."""
    rows = [
        row
        for path in sorted(RESULTS.glob("*.jsonl"), key=lambda path: (path.stem != OFFICIAL, path))
        if WITHOUT_PLANT not in path.stem
        for name in PAGES[page]
        if (row := _row(path, name))
    ]
    heads = (
        "| learner | log | unit | updates | seeds | mean ± standard deviation over seeds "
        "| difference to BC [95 %] | trips |"
    )
    heads += " controller |"
    published = [f"`{name}` {PUBLISHED[name]}" for name in PAGES[page] if name in PUBLISHED]
    footnotes = (
        f"\n\nPublished for NeoRL-2's DMSD (best ± its deviation / median / worst of a grid of "
        f"settings): {'; '.join(published)}."
        if published
        else ""
    )
    left = missing(PAGES[page])
    note = [left, ""] if left else []
    counts = [line for name in PAGES[page] for line in (*_counted(name), "")]
    counts += [_beaten(), ""] if page == "bc" else []
    return "\n".join([*counts, TEXT, "", *note, heads, "|" + "---|" * 9, *rows]) + footnotes


def _counted(name: str) -> list[str]:
    """On how many of the plants' logs a learner is above cloning and above the controllers."""
    above: list[str] = []
    below: list[str] = []
    single: list[str] = []
    logs = above_ordinary = above_reference = 0
    for path in sorted(RESULTS.glob("*-v0-*.jsonl")):
        cells = read_cells(path)
        if name not in cells:
            continue
        logs += 1
        runs = {key: [one["scores"] for one in cells[key]] for key in {name, "bc"}}
        controllers = read_controllers(path)
        # The first episodes of a long run are those of a shorter one.
        episodes = min(map(len, (*runs[name], *controllers.values())))
        mean = float(np.mean([scores[:episodes] for scores in runs[name]]))
        means = {key: float(np.mean(scores[:episodes])) for key, scores in controllers.items()}
        if min(map(len, runs.values())) < 2:
            single.append(log_name(path))  # one seed shows no interval of the difference
        elif name != "bc":
            _, low, high = difference_to_cloning(runs, name)
            above += [log_name(path)] * (low > 0)
            below += [log_name(path)] * (high < 0)
        env = make(path.stem.rpartition("-")[0])
        above_ordinary += mean > means[next(iter(env.tunings()))]
        above_reference += mean > means[env.reference]
    lines = [
        f"The mean of `{name}` is above that of the plant's ordinary controller on "
        f"{above_ordinary} of {logs} logs, and above that of its reference on {above_reference}."
    ]
    if name != "bc":
        lines.append(
            f"It is above `bc`, with an interval of the difference that excludes zero, on "
            f"{_listed(above)}, and below it on {_listed(below)}."
        )
    if single:
        lines.append(f"One seed, so no interval: {', '.join(single)}.")
    return lines


def _beaten() -> str:
    """On how many of the plants' logs the other learners are above behaviour cloning."""
    counts = wins(sorted(RESULTS.glob("*-v0-*.jsonl"))).items()
    parts = (f"`{name}` on {up} and {down} of {logs}" for name, (logs, up, down) in counts)
    return (
        f"Other learners are above it and below it, with an interval of the difference that "
        f"excludes zero: {', '.join(parts)} logs."
    )


def _listed(logs: list[str]) -> str:
    return f"{len(logs)} ({', '.join(logs)})" if logs else "none"


def _row(path: Path, name: str) -> str:
    cells = read_cells(path)
    if name not in cells:
        return ""
    runs = {key: [one["scores"] for one in cells[key]] for key in {name, "bc"} & set(cells)}
    means = [float(np.mean(run)) for run in runs[name]]
    spread = f" ± {between(runs[name])}" if len(means) > 1 else ""
    log = log_name(path)
    controllers = read_controllers(path)
    best = max(controllers, key=lambda key: float(np.mean(controllers[key])), default="")
    updates = f"{cells[name][0]['updates']:,}"
    row = [f"`{name}`", log, _unit(path), updates, str(len(means)), f"{np.mean(means):.4g}{spread}"]
    row += [over_cloning(name, runs), trips(cells[name])]
    row += [f"{best} {np.mean(controllers[best]):.4g}" if best else ""]
    return f"| {' | '.join(row)} |"


def _unit(path: Path) -> str:
    """The unit of the scores on a log."""
    if path.stem == OFFICIAL:
        return "normalised"
    return unit_words(make(path.stem.rpartition("-")[0]).reward_unit)


def counts(name: str) -> str:
    """The counts and ranks of a learner."""
    return "\n".join([*_counted(name), _ranked(name)])


def _ranked(name: str) -> str:
    """On which logs a learner has the best mean of all learners, the second or the third."""
    ranks: dict[int, list[str]] = {}
    logs = 0
    for path in sorted(RESULTS.glob("*-v0-*.jsonl")):
        cells = read_cells(path)
        if name not in cells:
            continue
        logs += 1
        episodes = min(len(one["scores"]) for seeds in cells.values() for one in seeds)
        means = {
            key: float(np.mean([one["scores"][:episodes] for one in seeds]))
            for key, seeds in cells.items()
        }
        rank = sorted(means, key=lambda key: -means[key]).index(name) + 1
        ranks.setdefault(rank, []).append(log_name(path))
    words = ["the best", "the second best", "the third best"]
    parts = [f"{word} on {_listed(ranks.get(rank, []))}" for rank, word in enumerate(words, 1)]
    return (
        f"Of all learners measured on a log, its mean over the episodes that all ran is "
        f"{', '.join(parts)} of these {logs} logs."
    )


def comparison() -> str:
    """Learners in a model beside the others: a row for each mixed log on which one was measured."""
    heads = ["mixed log", "unit", "updates", *(f"`{name}`" for name in IN_MODEL), "`bc`"]
    heads += ["best of the others", "ordinary controller", "reference"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for path in sorted(RESULTS.glob("*-mixed.jsonl")):
        cells = read_cells(path)
        measured = [name for name in IN_MODEL if name in cells]
        if not measured:
            continue
        # The first episodes of a long run are those of a shorter one.
        episodes = min(len(one["scores"]) for seeds in cells.values() for one in seeds)
        runs = {n: [one["scores"][:episodes] for one in seeds] for n, seeds in cells.items()}
        means = {name: float(np.mean(run)) for name, run in runs.items()}
        best = max(set(means) - set(IN_MODEL) - {"bc"}, key=lambda name: means[name])
        controllers = {n: float(np.mean(x[:episodes])) for n, x in read_controllers(path).items()}
        ordinary = next(iter(make(path.stem.rpartition("-")[0]).tunings()))
        updates = f"{cells[measured[0]][0]['updates']:,}"
        row = [log_name(path).removesuffix(" mixed"), _unit(path), updates]
        row += [_compared(name, runs, cells) for name in IN_MODEL]
        row += [f"{means['bc']:.4g}", f"`{best}` {means[best]:.4g}"]
        row += [f"{controllers[ordinary]:.4g}", f"{max(controllers.values()):.4g}"]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def _compared(name: str, runs: dict[str, Any], cells: dict[str, Any]) -> str:
    """Mean, whether it is surely above or below ``bc``, seeds and trips of one learner."""
    if name not in runs:
        return "-"
    words = [f"{len(runs[name])} seed{'s' if len(runs[name]) > 1 else ''}"]
    if len(runs[name]) > 1:
        _, low, high = difference_to_cloning(runs, name)
        words = ["above"] * (low > 0) + ["below"] * (high < 0) + words
    tripped = float(np.mean([one.get("trips", 0.0) for one in cells[name]]))
    words += [f"{tripped:.0%} trip"] if tripped >= 0.005 else []
    return f"{np.mean(runs[name]):.4g} ({', '.join(words)})"


TEXT = """Scores are returns minus the plant's penalties. All policies run the same
episodes, without a guard. Learners use their last networks, two layers of 64, and batches of
128 rows; the settings are the same for all plants. Scores on NeoRL-2's tasks are normalised.
*Trips* is the share of episodes that the plant ended; it is empty for older runs, which did not
record it. [Learners compared](learners-compared.md)
has all settings and the other learners."""


if __name__ == "__main__":
    main()
