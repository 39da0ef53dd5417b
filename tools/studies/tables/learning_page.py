"""The page that compares learners on logs, from the cells that learning_table.py has stored.

Usage:
    python tools/studies/tables/learning_page.py
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from cell_table import read_table
from learner_settings import changed_settings
from neorl_agents import ALGORITHMS
from neorl_core.statistics import crossed_interval, student_interval
from neorl_envs import environment_names, make

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "tools/studies/benchmarks/results/learning"
OTHERS = ROOT / "tools/studies/benchmarks/results/learning_settings.jsonl"
LONGER = ROOT / "tools/studies/benchmarks/results/more_updates"
RESAMPLES, LEVEL = 1_000, 0.95
SIMULATED, OFFICIAL, WITHOUT_PLANT = "-v0-", "DMSD-v0", "Simglucose"

# NeoRL-2's own grid of settings, recomputed from its committed logs: best, its deviation over three
# seeds, median and worst; 1,000,000 updates of 256 rows, networks of 256.
PUBLISHED = {
    "bc": "65.1 ± 1.6 / 64.7 / 64.1",
    "td3_bc": "60.0 ± 0.8 / 59.1 / 58.4",
    "cql": "70.2 ± 1.1 / 55.4 / 48.2",
    "edac": "78.7 ± 2.3 / 73.7 / 69.2",
}

COMPARED = (
    *("bc", "td3_bc", "iql", "awac", "xql", "rebrac", "cql", "cal_ql", "sac_n", "edac", "fql"),
    *("dt", "mopo", "mobile", "combo", "rambo", "morel"),
)

Cells = dict[str, list[dict[str, Any]]]


def main() -> None:
    print(page())


def page() -> str:
    """The text of the page."""
    tables = sorted(RESULTS.glob("*.jsonl"))
    own = [path for path in tables if SIMULATED in path.stem]
    official = RESULTS / f"{OFFICIAL}.jsonl"
    parts = [HEAD, "## NeoRL-2 DMSD, the official log", OFFICIAL_TEXT]
    parts += [
        table(official, PUBLISHED),
        _settings(official),
        OTHER_TEXT,
        NOT_CENTRED,
        other_settings(),
    ]
    for path in tables:
        if WITHOUT_PLANT in path.stem:
            parts += ["## NeoRL-2 Simglucose, the official log", WITHOUT_TEXT]
            parts += [beside_the_log(path), _settings(path)]
    if own:
        parts += ["## The plants' own logs", OWN_TEXT, _wins(own), missing()]
    for path in sorted(LONGER.glob("*.jsonl")):
        name, _, quality = path.stem.rpartition("-")
        parts += [f"### {name}, {quality}, more updates", LONGER_TEXT, table(path), _settings(path)]
    for path in own:
        name, _, quality = path.stem.rpartition("-")
        unit = f"Unit of scores: {unit_words(make(name).reward_unit)}."
        parts += [f"### {name}, {quality}", unit, table(path), _settings(path)]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(path: Path, published: dict[str, str] | None = None) -> str:
    """Every learner and controller of a table of cells, the best mean first.

    The interval of the interquartile mean resamples seeds, then episodes within each (percentiles
    of 1,000 resamples). The difference to behaviour cloning is paired by seed and episode, its
    interval speaks of fresh seeds and fresh episodes.
    """
    cells = read_cells(path)
    runs = {name: [one["scores"] for one in seeds] for name, seeds in cells.items()}
    runs |= {name: [x] for name, x in read_controllers(path).items()}
    heads = ["policy", "seeds", "mean", "standard deviation over seeds"]
    heads += [
        f"IQM [{LEVEL:.0%} interval]",
        "difference to BC [95 % interval]",
        "trips",
        "mean in test",
    ]
    tripped = read_table(path).also.get("controller_trips", {})
    if published:
        heads.append("published best / median / worst")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name, scores in sorted(runs.items(), key=lambda item: -np.mean(np.concatenate(item[1]))):
        row = [name, str(len(scores)), f"{np.mean(scores):.4g}", between(scores)]
        row += [_iqm_text(scores), over_cloning(name, runs)]
        row += [trips(cells.get(name, []), tripped.get(name)), _in_test(cells.get(name, []))]
        if published:
            row.append(published.get(name, ""))
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def read_cells(path: Path) -> Cells:
    """The stored results of every learner that came to an end."""
    cells: Cells = {}
    for result in read_table(path).cells:
        if "scores" in result or "held_out" in result:
            cells.setdefault(result["algorithm"], []).append(result)
    return cells


def read_controllers(path: Path) -> dict[str, list[float]]:
    """The scores of the plant's controllers by name."""
    return read_table(path).also.get("controllers", {})


def beside_the_log(path: Path) -> str:
    """How the policies' actions compare with those of a log that was not trained on."""
    lines = ["| policy | seeds | distance to the log's action | at a bound |", "|---|---|---|---|"]
    cells = read_cells(path)
    for name, seeds in sorted(cells.items(), key=lambda item: _mean_of(item[1], "distance")):
        spread = [f"{one['held_out']['distance']:.3f}" for one in seeds]
        bound = _mean_of(seeds, "at_bound")
        lines.append(f"| {name} | {len(seeds)} | {', '.join(spread)} | {bound:.0%} |")
    logged = _mean_of(next(iter(cells.values())), "logged_at_bound")
    return "\n".join([*lines, f"| the log itself | | 0 | {logged:.0%} |"])


def difference_to_cloning(runs: dict[str, list[list[float]]], name: str) -> tuple[float, ...]:
    """Mean, lower and upper end of the difference to ``bc``, paired by seed and episode."""
    both = min(len(runs[name]), len(runs["bc"]))
    # The first of many episodes are those of a run with fewer: their keys are split from one.
    episodes = min(len(runs[name][0]), len(runs["bc"][0]))
    of_both = (np.asarray(runs[one][:both])[:, :episodes] for one in (name, "bc"))
    paired = np.subtract(*of_both)
    interval = crossed_interval(jnp.asarray(paired, jnp.float32), level=LEVEL)
    return float(interval.estimate), float(interval.low), float(interval.high)


def over_cloning(name: str, runs: dict[str, list[list[float]]]) -> str:
    """The difference to ``bc`` with its interval; nothing where either has a single seed."""
    if name == "bc" or name not in ALGORITHMS or min(len(runs.get("bc", [])), len(runs[name])) < 2:
        return ""
    mean, low, high = difference_to_cloning(runs, name)
    return f"{mean:+.4g} [{low:.4g}, {high:.4g}]"


def wins(tables: Sequence[Path]) -> dict[str, tuple[int, int, int]]:
    """Logs of each learner, and those on which it is above and below behaviour cloning.

    With the whole interval of the difference; the best first.
    """
    above: Counter[str] = Counter()
    below: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    for path in tables:
        runs = {name: [one["scores"] for one in x] for name, x in read_cells(path).items()}
        for name in set(runs) - {"bc"}:
            if "bc" in runs and min(len(runs[name]), len(runs["bc"])) > 1:
                _, low, high = difference_to_cloning(runs, name)
                counted[name] += 1
                above[name] += low > 0
                below[name] += high < 0
    order = sorted(counted, key=lambda name: (below[name] - above[name], name))
    return {name: (counted[name], above[name], below[name]) for name in order}


def _wins(tables: Sequence[Path]) -> str:
    """The table of :func:`wins`."""
    lines = ["| learner | logs | above BC | below BC | undecided |", "|---|---|---|---|---|"]
    for name, (logs, above, below) in wins(tables).items():
        left = logs - above - below
        lines.append(f"| {name} | {logs} | {above} | {below} | {left} |")
    return "\n".join(lines)


def between(runs: list[list[float]]) -> str:
    """The standard deviation of the seeds' means; nothing of a single one."""
    return f"{np.std([np.mean(run) for run in runs], ddof=1):.3g}" if len(runs) > 1 else ""


def trips(seeds: list[dict[str, Any]], controller: float | None = None) -> str:
    """The share of a policy's episodes that tripped; nothing where it was not recorded."""
    known = [one["trips"] for one in seeds if "trips" in one]
    known = known or [] if controller is None else [controller]
    return f"{100 * np.mean(known):.3g} %" if known else ""


def missing(learners: Sequence[str] = COMPARED) -> str:
    """Which learners have no row on which of the plants' own logs."""
    without: dict[str, list[str]] = {}
    for plant, quality in itertools.product(sorted(environment_names()), ("medium", "mixed")):
        path = RESULTS / f"{plant}-{quality}.jsonl"
        cells = read_cells(path)
        left = ", ".join(f"`{name}`" for name in learners if name not in cells)
        if left:
            without.setdefault(left, []).append(log_name(path))
    reasons = "; ".join(f"{text} on {', '.join(logs)}" for text, logs in without.items())
    return f"Not measured for the present plants and learners: {reasons}." if reasons else ""


def unit_words(unit: str) -> str:
    """The unit of a reward in words."""
    return "none" if unit == "1" else unit


def log_name(path: Path) -> str:
    """How a page calls the log of a table."""
    return "NeoRL-2 DMSD, official" if path.stem == OFFICIAL else path.stem.replace("-v0-", " ")


def _in_test(seeds: list[dict[str, Any]]) -> str:
    runs = [one["test_mode"] for one in seeds if "test_mode" in one]
    return f"{np.mean(runs):.4g}" if runs else ""


def _mean_of(seeds: list[dict[str, Any]], name: str) -> float:
    return float(np.mean([one["held_out"][name] for one in seeds]))


def other_settings() -> str:
    """Single runs on the official log with settings that are not in its table."""
    lines = [
        "| learner | settings | seed | mean [95 % interval of it over episodes] |",
        "|---|---|---|---|",
    ]
    for result in read_table(OTHERS).cells:
        interval = student_interval(jnp.asarray(result["scores"], jnp.float32), level=LEVEL)
        lines.append(
            f"| {result['algorithm']} | {_changed(result)} | {result['seed']} | "
            f"{interval.estimate:.4g} [{interval.low:.4g}, {interval.high:.4g}] |"
        )
    return "\n".join(lines)


def _settings(path: Path) -> str:
    """What is not the learner's default, once for all learners that share it."""
    groups: dict[str, list[str]] = {}
    for name, seeds in read_cells(path).items():
        groups.setdefault(_changed(seeds[0]) + _when(seeds[0]), []).append(f"`{name}`")
    listed = "; ".join(f"{', '.join(names)}: {text}" for text, names in groups.items())
    failed = [one for one in read_table(path).cells if one.get("failure")]
    words = ", ".join(f"`{one['algorithm']}` with seed {one['seed']}" for one in failed)
    diverged = f" Diverged: {words}." if failed else ""
    return f"Settings other than the defaults: {listed}.{diverged}" if listed else ""


def _when(result: dict[str, Any]) -> str:
    episodes = f", {len(result['scores'])} episodes" if "scores" in result else ""
    return f"{episodes}, measured {result.get('date', 'by 2026-11-23')}"


def _changed(result: dict[str, Any]) -> str:
    settings = changed_settings(result["algorithm"], result["hyperparameters"])
    changed = [f"{result['updates']:,} updates"]
    return ", ".join(changed + [f"`{field}` {value}" for field, value in settings.items()])


def _iqm_text(runs: list[list[float]]) -> str:
    scores = np.asarray(runs)
    seeds, episodes = scores.shape
    rng = np.random.default_rng(0)
    chosen = rng.integers(seeds, size=(RESAMPLES, seeds, 1))
    draws = scores[chosen, rng.integers(episodes, size=(RESAMPLES, seeds, episodes))]
    means = _iqm(draws.reshape(RESAMPLES, -1))
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return f"{_iqm(scores.ravel()):.4g} [{low:.4g}, {high:.4g}]"


def _iqm(x: np.ndarray) -> np.ndarray:
    count = x.shape[-1]
    cut = count // 4
    return np.sort(x, axis=-1)[..., cut : count - cut].mean(axis=-1)


HEAD = """# Learners compared

The build of the site makes this page from the results that
`tools/studies/tables/learning_table.py` has stored (one table for every log in
`tools/studies/benchmarks/results/learning`). A score is the return of an episode minus the plant's
declared penalties; the reward in training has the same penalties subtracted. All policies of a
table run the same episodes, and learners act without a guard. *Trips* is the share of those
episodes that the plant ended; it is empty where this was not recorded. *Mean in test* is the mean
with the plant's constants changed as the plant's page says under *test mode*.
*Standard deviation over seeds* is that of the seeds' means. The networks are always the
last ones of a run, never the best. Each table is followed by its updates, settings, episodes
and date, and by the runs that diverged. Updates, episodes and seeds differ between plants. Within
a table all learners have the same updates and seeds, but for a run that is missing or diverged;
some ran more episodes, of which the first are those of the others.

Learners under cost limits are not on this page: how often they break the limits, and what they
earn, is measured [with smaller logs](learners-under-limits.md)."""

NOT_CENTRED = """*These settings were tried before learners subtracted the mean reward on logs
without a terminated row. This log is one of those, so the figures cannot be compared with the
table above.*"""

OFFICIAL_TEXT = """Scores are normalised by NeoRL-2's references and measured on `DMSD-v0`,
which repeats that task step for step. The published figures are levels over that benchmark's
own grid of settings, which was chosen on the true plant; they took one million updates (EDAC:
three million) of 256 rows with networks of 256. The runs here took 100,000 updates of 128 rows
with networks of 64."""

OTHER_TEXT = """Other settings were tried on this log; all figures are in the table below. With
networks of 64 and seed 0, EDAC gained nothing from three times the updates (69.5 against 71.6) or
from the reward's own scale (66.1). The rows of CQL have a smaller weight and faster rates than
the defaults, and one of them has networks of 128. With the multiplier (`lagrange`) and the default
gap of 5, which is above the conservative term on this log, the multiplier falls to zero and the
policy loses everything (17.3). With a gap of 1, which is a threshold of 8 in the published grid,
the multiplier rises to its bound of a million, and the score (56.7) is near the median of that
grid (55.4). Without a multiplier CQL reaches 63.9 to 65.1, between the median and the best (70.2)
of that grid."""

WITHOUT_TEXT = """This project has no simulator of this task, so nothing can be scored, and no
figure below is comparable with the published ones (BC 75.1, TD3+BC 74.2, CQL 11.0, EDAC 8.1 at
best). Two quantities can be measured without one: how far the policies' actions are from those
of the task's validation log, which was not used in training (root mean square, in half ranges);
and how many actions lie within a hundredth of half the range of a bound, beside the share in
the log itself."""

OWN_TEXT = """These logs have 100,000 rows of the qualities `mixed` and `medium`, collected
with seed 0. Settings do not depend on the plant, except that learners in a model are given the
names of its exogenous channels. All rows belong to the present plants and learners: rows that
were measured before a plant changed, or before rewards were centred where that makes a
difference, have been removed. A table with few updates and three seeds shows large differences
only. The first table counts the logs on which the interval of the difference to
behaviour cloning (paired by seed and episode, for fresh seeds and episodes) lies above or below
zero; where one of the two ran more episodes, the difference is over those that both ran."""


LONGER_TEXT = """**On Pipeline, 10,000 updates measure the number of updates more than the
learners**: `iql` is far below behaviour cloning after them. These are some of the learners after
40,000, on the same log and with the same settings and seeds:"""


if __name__ == "__main__":
    main()
