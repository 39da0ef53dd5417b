"""What the page on retuned controllers says of the stored rows; ``retuning_table.py`` writes it.

A row is one choice on one log: its way, its predicted gain and the paired gain on the plant. All
counts are derived from the rows, so they change with every log that is added.
"""

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neorl_envs import make

ROOT = Path(__file__).resolve().parents[4]
BASELINES = ROOT / "tools/studies/baselines"
RULE = 2
"""Number of the rule that a row was made by; rows of an older one are made anew."""
RETUNED, NETWORK, BOTH, PICK = "retuned", "network", "retuned and network", "pick"
LOGS = ("all controllers", "the ordinary controller alone")


class Kind(NamedTuple):
    """The choices that are counted together: rows with equal log, role and way."""

    log: str
    reference: bool
    way: str


KINDS = {
    Kind(LOGS[1], False, RETUNED): "retuned ordinary controllers from their own logs",
    Kind(LOGS[1], False, PICK): "picks for ordinary controllers from their own logs",
    Kind(LOGS[0], False, RETUNED): "retuned ordinary controllers from logs of all",
    Kind(LOGS[0], False, NETWORK): "networks on top of ordinary controllers from logs of all",
    Kind(LOGS[0], False, PICK): "picks for ordinary controllers from logs of all",
    Kind(LOGS[0], True, PICK): "picks for references from logs of all",
}
GOALS = (
    (Kind(LOGS[0], False, PICK), 9),
    (Kind(LOGS[1], False, PICK), 8),
    (Kind(LOGS[0], True, PICK), 3),
    (Kind(LOGS[0], False, NETWORK), 8),
)
"""The number of plants on which four of five choices of a kind should be deployed."""
MOST_HARM = 2
"""Of 55 picks for ordinary controllers, five logs of each plant."""
MOST_ERROR, CLOSE_PLANTS = 0.1, 7
MOST_SECONDS = 600
AIM = 85 / 92
"""Share of the picks for ordinary controllers whose interval should hold the gain on the plant."""
Z = 1.96
NEAR, SLACK = 1.25, 1e-4
"""Distance from the log up to which no penalty widens an interval, as a factor and in addition."""

Rows = list[dict[str, Any]]
Results = dict[str, Rows]


def kind_of(row: dict[str, Any]) -> Kind:
    """The kind of a choice."""
    return Kind(row["log"], row["reference"], row["way"])


def answer(row: dict[str, Any]) -> str:
    """What became of one choice: deployed, kept, not deployed, or harm."""
    if row["failed"] == ["kept"]:
        return "kept"
    if not row["failed"]:
        return "deploy"
    return "harm" if row["gain"][2] < 0 or any(name != "return" for name in row["failed"]) else "no"


def counted(results: Results) -> str:
    """The counts over all plants and seeds, one sentence a kind, and what was picked."""
    every = [row for rows in results.values() for row in rows]
    lines = []
    for kind, words in KINDS.items():
        answers = [answer(row) for row in every if kind_of(row) == kind]
        if answers:
            lines.append(
                f"- Of {len(answers)} {words} {answers.count('deploy')} were deployed, "
                f"{answers.count('kept')} kept, {answers.count('no')} changed without a clear gain, "
                f"and {answers.count('harm')} made worse or taken over a limit."
            )
    chosen = [row["chosen"] for row in _changed_picks(every)]
    picked = (
        f"Of {len(chosen)} picks that replace today's controller, {chosen.count(RETUNED)} are the "
        f"retuned controller, {chosen.count(NETWORK)} a network on top of today's controller and "
        f"{chosen.count(BOTH)} a network on top of the retuned one. Nothing else was in the pool."
    )
    return "\n".join([*lines, "", picked])


def _changed_picks(rows: Rows) -> Rows:
    """The picks that replace today's controller; each is compared with a predicted gain."""
    return [row for row in rows if row["way"] == PICK and answer(row) != "kept"]


def network_gains(results: Results) -> str:
    """What a network of bounded authority brings where retuning alone does, or does not."""
    pairs = []
    for name, rows in results.items():
        ordinary = [row for row in rows if not row["reference"]]
        alone = {(row["log"], row["seed"]): row for row in ordinary if row["way"] == RETUNED}
        picks = [row for row in ordinary if row["way"] == PICK]
        pairs += [(name, alone[pick["log"], pick["seed"]], pick) for pick in picks]
    topped = [pair for pair in pairs if pair[2]["chosen"] in (NETWORK, BOTH)]
    kept = [pair for pair in pairs if answer(pair[1]) != "deploy"]
    reached = [pair for pair in topped if pair in kept and answer(pair[2]) == "deploy"]
    more = [pair for pair in topped if pair[2]["gain"][1] > pair[1]["gain"][2]]
    plants, further = (sorted({name for name, *_ in some}) for some in (reached, more))
    return (
        f"Of {len(kept)} choices for ordinary controllers in which the retuned controller alone is "
        f"not deployed, {len(reached)} are deployed with a network, on {len(plants)} plants (goal: "
        f"6): {', '.join(plants)}. In {len(more)} of {len(pairs)}, on {len(further)} plants, a "
        "network gains significantly more than the retuned controller alone. Of "
        f"{len(topped)} picks for them that contain a network, "
        f"{[answer(pick) for *_, pick in topped].count('harm')} did harm."
    )


def covered(results: Results) -> str:
    """How often the interval of a predicted gain holds the gain on the plant."""
    picks = _changed_picks([row for rows in results.values() for row in rows])
    sentences = []
    for reference, whose in ((False, "an ordinary controller"), (True, "a reference")):
        some = [row for row in picks if row["reference"] == reference]
        lows = [row["predicted_low"] for row in some]
        highs = [2 * row["predicted"] - row["predicted_low"] for row in some]
        gains = [row["gain"] for row in some]
        below = sum(gain[0] < low for gain, low in zip(gains, lows, strict=True))
        surely = sum(gain[2] < low for gain, low in zip(gains, lows, strict=True))
        above = sum(gain[0] > high for gain, high in zip(gains, highs, strict=True))
        sentences.append(
            f"Of {len(some)} picks that replace {whose}, the gain on the plant lies in the "
            f"interval of the predicted gain for {len(some) - below - above}, below it for {below} "
            f"and above it for {above}; for {surely} of those below, the whole interval of the "
            "gain on the plant lies below too."
        )
    return " ".join(
        ("**Do not read the interval of a predicted gain as one for the true gain.**", *sentences)
    )


def _ordinary_picks(results: Results) -> list[tuple[str, dict[str, Any]]]:
    """The picks that replace an ordinary controller, with the names of their plants."""
    return [
        (name, row)
        for name, rows in results.items()
        for row in _changed_picks(rows)
        if not row["reference"]
    ]


def causes(results: Results, pools: Sequence[dict[str, Any]]) -> str:
    """A line for each part of the error that is taken away, with what its interval then holds.

    Args:
        results: Rows of every plant, of which the picks for ordinary controllers count.
        pools: The stored pools of perturbed controllers, which nobody searched or chose. Only those
            without a penalty for leaving the log count, because it widens their intervals.
    """
    picks = _ordinary_picks(results)
    predicted, true, error = (
        np.asarray([part(row) for _, row in picks])
        for part in (
            lambda row: row["predicted"], lambda row: row["gain"][0], lambda row: row["error"]
        )
    )  # fmt: skip
    half = predicted - np.asarray([row["predicted_low"] for _, row in picks])
    draw = np.asarray([row["gain"][2] - row["gain"][1] for _, row in picks]) / 2
    kinds = [(name, row["log"]) for name, row in picks]
    corrected = np.zeros(len(picks))
    for i, kind in enumerate(kinds):
        others = [j for j, other in enumerate(kinds) if other == kind and j != i]
        ratio = true[others].sum() / predicted[others].sum() if others else 1.0
        corrected[i] = ratio * predicted[i]
    tried = [
        one for pool in pools for one in pool["candidates"]
        if one["outside"][0] <= NEAR * one["outside"][1] + SLACK and abs(one["predicted"]) < 1e20
    ]  # fmt: skip
    chance = np.asarray([one["gain"] - one["predicted"] for one in tried])
    reach = np.asarray([one["predicted"] - one["predicted_low"] for one in tried])
    lines = [
        ("nothing", true - predicted, half),
        ("the draw of the 1,000 episodes that say what is true", true - predicted, half + draw),
        ("few episodes: an interval half as wide again", true - predicted, 1.5 * half),
        ("search and choice: perturbed controllers near the log, each predicted once", chance,
         reach),
        ("what the model gets wrong on every log of a plant: predictions times the ratio of true "
         "to predicted gains of the other logs", true - corrected, half),
        ("nothing, but the model's error on logged episodes counts as a standard error",
         true - predicted, np.hypot(half, Z * error)),
    ]  # fmt: skip
    table = ["| Taken away | Inside | Below | Above |", "|---|---|---|---|"]
    for words, difference, width in lines:
        below, above = (difference < -width).sum(), (difference > width).sum()
        inside = len(difference) - below - above
        table.append(f"| {words} | {inside} of {len(difference)} | {below} | {above} |")
    return "\n".join(table)


def missed(results: Results) -> str:
    """What the interval with the model's error misses, and whether one more part mends it.

    A part is a constant times something that is stored. The constant is the least with which the
    intervals hold :data:`AIM` of the gains on one half of the plants, for every choice of a half;
    what counts is the other half.
    """
    picks = _ordinary_picks(results)
    names = np.asarray([name for name, _ in picks])
    plants, rows = sorted(set(names)), [row for _, row in picks]
    predicted, low, true, error = (
        np.asarray([part(row) for row in rows])
        for part in (
            lambda row: row["predicted"], lambda row: row["predicted_low"],
            lambda row: row["gain"][0], lambda row: row["error"],
        )
    )  # fmt: skip
    off, width = np.abs(true - predicted), np.hypot(predicted - low, Z * error)
    network = np.asarray([row["chosen"] != RETUNED for row in rows])
    own = np.asarray([row["log"] == LOGS[1] for row in rows])
    groups = [
        ("the controller retuned, no network", ~network),
        ("with a network, from a log of all controllers", network & ~own),
        ("with a network, from the ordinary controller's own log", network & own),
    ]
    table = ["| Pick | Inside |", "|---|---|"]
    table += [f"| {words} | {(off <= width)[of].sum()} of {of.sum()} |" for words, of in groups]
    table += [
        "",
        "| One more part | Inside on all plants | Halves of which the other reaches the aim | "
        "Gains refused |",
        "|---|---|---|---|",
    ]
    halves = [np.isin(names, half) for half in itertools.combinations(plants, len(plants) // 2)]
    for words, part in (
        ("none", np.zeros(len(rows))),
        ("the predicted gain", predicted),
        ("the predicted gain of a network from an own log", predicted * network * own),
        ("the model's error", Z * error),
        ("the width of today", predicted - low),
    ):
        missing = np.sqrt(np.maximum(off**2 - width**2, 0))
        of_row = np.divide(missing, part, out=np.full(len(rows), np.inf), where=part > 0)
        of_row[missing == 0] = 0.0
        known = of_row < np.inf
        held = [known[~half] & (of_row[~half] <= _least(of_row[half])) for half in halves]
        reached = [inside.mean() >= AIM - 1e-9 for inside in held]
        constant = _least(of_row) if part.any() else 0.0
        refused = int((np.hypot(width, constant * part) >= predicted).sum())
        table.append(
            f"| {words}{f', times {constant:.2f}' * bool(part.any())} | "
            f"{(of_row <= constant).sum()} of {len(rows)} | {sum(reached)} of {len(halves)} | "
            f"{refused} |"
        )
    return "\n".join(table)


def _least(constants: np.ndarray) -> float:
    """The least constant that suffices for a share of :data:`AIM` of some picks."""
    return float(np.sort(constants)[math.ceil(AIM * len(constants) - 1e-9) - 1])


def goals(results: Results) -> str:
    """A line for each goal, with the number of plants and logs that were measured."""
    lines = ["| Goal | Measured |", "|---|---|"]
    for kind, goal in GOALS:
        answers = [
            some
            for rows in results.values()
            if (some := [answer(row) for row in rows if kind_of(row) == kind])
        ]
        enough = sum(5 * some.count("deploy") >= 4 * len(some) for some in answers)
        lines.append(
            f"| {KINDS[kind]}: *deploy* in four of five logs on {goal} of 11 plants | on {enough} "
            f"of {len(answers)} plants, with {_range([len(some) for some in answers])} logs of "
            f"each ({sum(map(len, answers))} in all) |"
        )
    errors = {name: model_error(name, rows) for name, rows in results.items()}
    known = [error for error in errors.values() if error is not None]
    lines.append(
        f"| the model's error across the controllers of the log, all of which are in its fit, is "
        f"at most {100 * MOST_ERROR:.0f} % of the difference between ordinary controller and "
        f"reference on {CLOSE_PLANTS} of 11 plants | on "
        f"{sum(error <= MOST_ERROR for error in known)} of "
        f"{len(known)} plants; {100 * min(known):.0f} to "
        f"{100 * max(known):.0f} % |"
    )
    picks = [row for rows in results.values() for row in rows if kind_of(row) == GOALS[0][0]]
    lines.append(
        f"| at most {MOST_HARM} of 55 picks for ordinary controllers from logs of all do harm | "
        f"{[answer(row) for row in picks].count('harm')} of {len(picks)} |"
    )
    return "\n".join([*lines, _times(results)])


def _range(counts: Sequence[int]) -> str:
    """``"5"`` if all counts are equal, and otherwise ``"2 to 5"``."""
    least, most = min(counts), max(counts)
    return f"{most}" if least == most else f"{least} to {most}"


def _times(results: Results) -> str:
    """The row on the time that one controller of one log took."""
    seconds = {
        (name, row["log"], row["seed"], row["controller"]): sum(row["seconds"])
        for name, rows in results.items()
        for row in rows
    }
    logs = {key[:3] for key in seconds}
    slow: dict[tuple[str, str, int], float] = {}
    for key, value in sorted(seconds.items(), key=lambda item: item[1]):
        if value > MOST_SECONDS:
            slow[key[:3]] = value
    named = [f"{name} {value:.0f} s" for (name, _, _), value in reversed(slow.items())]
    words = f"{len(slow)} of {len(logs)} logs{': ' * bool(named)}{', '.join(named)}"
    return (
        f"| model, search and networks for one controller take at most {MOST_SECONDS // 60} "
        f"minutes | {np.median(list(seconds.values())):.0f} s in the median of {len(seconds)}, "
        f"one for each controller of each log; longer on {words} |"
    )


def model_error(name: str, rows: Rows) -> float | None:
    """The mean error of the models of a plant, as a share of what its controllers differ by.

    ``None`` where the picks of one controller are not there.
    """
    stored_rows = json.loads((BASELINES / f"{name}.json").read_text())["rows"]
    returns = {row["policy"]: row["return"] for row in stored_rows}
    known = [row for row in rows if (row["log"], row["way"]) == (LOGS[0], PICK)]
    own = [returns[row["controller"]] for row in known]
    errors = [row["error"] for row in known if not row["reference"]]
    return float(np.mean(errors)) / (max(own) - min(own)) if len(set(own)) == 2 else None


def gain_words(gain: Sequence[float]) -> str:
    """A gain and its interval, rounded to the scale of a quarter of the interval's width."""
    value, low, high = gain
    width = high - low
    digits = max(0, -math.floor(math.log10(width / 4))) if width > 0 else 3
    return f"{value:+.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def tables(results: Results) -> str:
    """For every kind a table with a line for each plant and a column for each log."""
    blocks = []
    for kind, words in KINDS.items():
        by_plant = {
            name: {row["seed"]: row for row in rows if kind_of(row) == kind}
            for name, rows in results.items()
        }
        seeds = sorted({seed for some in by_plant.values() for seed in some})
        if not seeds:
            continue
        lines = [
            f"### {words[0].upper()}{words[1:]}",
            "",
            f"| Plant (unit of the gain) | {' | '.join(f'Log {seed}' for seed in seeds)} |",
            "|---" * (1 + len(seeds)) + "|",
        ]
        for name, some in by_plant.items():
            cells = [_cell(some[seed]) if seed in some else "-" for seed in seeds]
            lines.append(f"| {name} ({make(name).reward_unit}) | {' | '.join(cells)} |")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _cell(row: dict[str, Any]) -> str:
    word = answer(row)
    return word if word == "kept" else f"{word}, {gain_words(row['gain'])}"


def section(every: Results) -> str:
    """All tables: today's rule, and counts of older rows."""
    today, older = (
        {name: some for name, rows in every.items() if (some := [r for r in rows if of(r)])}
        for of in (lambda row: row.get("rule") == RULE, lambda row: row.get("rule") != RULE)
    )
    pools = json.loads((BASELINES / "choice/candidate_pools.json").read_text())
    blocks = [
        counted(today), network_gains(today), covered(today), causes(today, pools), missed(today),
        goals(today), tables(today),
    ]  # fmt: skip
    if older:
        blocks += ["By the earlier rule, from other logs:", counted(older)]
    return "\n\n".join(blocks)
