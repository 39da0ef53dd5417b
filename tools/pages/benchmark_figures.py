"""The figures of the benchmark page and of short logs, from stored results as inline SVG.

`built` puts them into their pages; every mark has its numbers as a title, which browsers show. Text
has the colour of the page's text, and greys are translucent, so that both themes suit.
"""

import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SPEEDS = ROOT / "tools/studies/benchmarks/results/learners.json"
BETTER, WORSE, UNDECIDED, EMPTY = "#2a86b8", "#c2410c", "#94a3b880", "#94a3b81f"
LINE = "#94a3b8"
PEERS = {"corl": BETTER, "d3rlpy": WORSE, "unifloral": "#64748b"}
ANSWERS = {"deploy": BETTER, "kept": LINE, "no": "#fbbf24", "harm": WORSE}
CELL, LABEL, ROW = 26, 96, 24
TURN = 55
"""Degrees by which the names of logs are turned."""
CHARACTER = 7.2
"""Width of a character, in pixels; all other lengths are in pixels too."""
TITLES = {
    "deploy": "better on the plant within all limits",
    "kept": "today's controller kept",
    "no": "changed without a clear gain",
    "harm": "worse, or over a limit",
}


def text(x: float, y: float, words: str, anchor: str = "start", turn: int = 0) -> str:
    """A line of text; ``turn`` rotates it around its place, in degrees."""
    rotated = f' transform="rotate({turn} {x:g} {y:g})"' if turn else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{rotated}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, colour: str, words: str) -> str:
    """A rectangle with the text that a browser shows over it."""
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {place} rx="3" fill="{colour}"><title>{escape(words)}</title></rect>'


def legend(x: float, y: float, entries: Iterable[tuple[str, str]]) -> list[str]:
    """Colours and their meaning in one line."""
    parts = []
    for colour, words in entries:
        parts += [box(x, y - 11, 14, 14, colour, words), text(x + 20, y + 1, words)]
        x += 36 + CHARACTER * len(words)
    return parts


def figure(width: float, height: float, words: str, parts: Sequence[str]) -> str:
    """An SVG that fits its column and is never larger than it was drawn."""
    return (
        f'<div class="figure"><svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'aria-label="{escape(words)}" viewBox="0 0 {width:g} {height:g}" '
        f'font-family="sans-serif" font-size="13" fill="currentColor" '
        f'style="max-width: {width:g}px">{"".join(parts)}</svg></div>'
    )


def learners(
    plants: Sequence[str], results: dict[str, dict[str, tuple[float, float, float]]]
) -> str:
    """Learners by logs: above, below or not distinguishable from behaviour cloning.

    Args:
        plants: Names of the logs, in the order of the columns.
        results: By learner and log the difference to behaviour cloning with its interval.
    """
    parts, longest = [], CHARACTER * max(map(len, plants))
    top = 24 + longest * math.sin(math.radians(TURN))
    for column, log in enumerate(plants):
        parts.append(text(LABEL + column * CELL + 17, top - 8, log, turn=-TURN))
    for row, (learner, cells) in enumerate(results.items()):
        y = top + row * ROW
        parts.append(text(LABEL - 8, y + 16, learner, "end"))
        for column, log in enumerate(plants):
            colour, words = EMPTY, f"{learner} on {log}: not measured with two seeds"
            if log in cells:
                mean, low, high = cells[log]
                colour = BETTER if low > 0 else WORSE if high < 0 else UNDECIDED
                words = f"{learner} on {log}: {mean:+.3g} [{low:.3g}, {high:.3g}] beside bc"
            parts.append(box(LABEL + column * CELL + 1, y + 1, CELL - 2, ROW - 2, colour, words))
    end = top + len(results) * ROW + 26
    names = (
        (BETTER, "above bc"), (UNDECIDED, "undecided"), (WORSE, "below bc"), (EMPTY, "not tried"),
    )  # fmt: skip
    parts += legend(LABEL, end, names)
    right = longest * math.cos(math.radians(TURN))
    return figure(LABEL + len(plants) * CELL + right, end + 16, "Learners beside cloning", parts)


def speeds() -> str:
    """How many times as long other libraries take for an update, on a logarithmic axis."""
    cases = json.loads(SPEEDS.read_text(encoding="utf-8"))["cases"]
    left, width, top = 190, 520, 40
    longest = math.log(max(_ratio(case, peer) for case in cases for peer in _peers(case)))
    zero = left + 60

    def place(ratio: float) -> float:
        return zero + (width - 60) * math.log(ratio) / longest

    parts, y = [], top
    for case in cases:
        name = f"{case['learner']}, {'small' if case['size'] == 'industrial' else 'D4RL size'}"
        parts.append(text(left - 8, y + 5 * len(_peers(case)) + 4, name, "end"))
        for peer in _peers(case):
            ratio, end = _ratio(case, peer), place(_ratio(case, peer))
            words = f"{name}: {peer} takes {ratio:.3g} times as long"
            start, stop = sorted((zero, end))
            parts.append(box(start, y, max(stop - start, 1), 9, PEERS[peer], words))
            y += 10
        y += 8
    for ratio in (1, 2, 5, 10, 20, 50):
        x = place(ratio)
        parts.append(f'<line x1="{x:g}" x2="{x:g}" y1="{top - 6}" y2="{y}" stroke="{LINE}"/>')
        parts.append(text(x, top - 12, f"{ratio}x", "middle"))
    parts += legend(left, y + 20, ((colour, peer) for peer, colour in PEERS.items()))
    return figure(left + width + 40, y + 36, "Time of an update beside other libraries", parts)


def retuned(results: dict[str, list[tuple[str, tuple[float, float, float], str]]]) -> str:
    """A dot for each log of a plant: how far the choice that was made from it came.

    Args:
        results: By plant and log one of the keys of `TITLES`, the share of the way from today's
            controller to the reference with its interval, and the gain in words.
    """
    left, width, top = 180, 460, 30
    ends = [end for of_logs in results.values() for _, interval, _ in of_logs for end in interval]
    least, most = min(0.0, *ends), max(1.0, *ends)

    def place(share: float) -> float:
        return left + 20 + (width - 40) * (share - least) / (most - least)

    parts = []
    end = top + len(results) * ROW
    for share in (0, 0.25, 0.5, 0.75, 1):
        x = place(share)
        parts.append(f'<line x1="{x:g}" x2="{x:g}" y1="{top}" y2="{end}" stroke="{LINE}"/>')
        parts.append(text(x, top - 8, f"{share:.0%}".replace("%", " %"), "middle"))
    for row, (plant, of_logs) in enumerate(results.items()):
        y = top + row * ROW
        parts.append(text(left, y + 16, plant, "end"))
        for column, (answer, (mean, low, high), gain) in enumerate(of_logs):
            middle, colour = y + 4 + 4 * column, ANSWERS[answer]
            words = escape(f"{plant}, log {column}: {TITLES[answer]}, {gain}")
            parts.append(
                f'<g fill="{colour}" stroke="{colour}"><title>{words}</title>'
                f'<line x1="{place(low):.1f}" x2="{place(high):.1f}" y1="{middle}" y2="{middle}" '
                f'stroke-width="1.5"/><circle cx="{place(mean):.1f}" cy="{middle}" r="3.5"/></g>'
            )
    end += 24
    for name, colour in ANSWERS.items():
        parts += legend(left, end, ((colour, TITLES[name]),))
        end += 20
    return figure(left + width, end, "What retuning brought on every plant", parts)


def lengths(results: dict[str, dict[int, tuple[int, int, str]]]) -> str:
    """The share of logs of a length that ended in a trial with a true gain, a line for each plant.

    Args:
        results: By plant and number of episodes how many logs did, of how many, and what came of
            them in words.
    """
    left, width, top, height = 60, 480, 20, 200
    ends = sorted({count for of_plant in results.values() for count in of_plant})
    scale = width / math.log(ends[-1] / ends[0])

    def place(count: int, share: float) -> tuple[float, float]:
        return left + 20 + scale * math.log(count / ends[0]), top + height * (1 - share)

    parts = []
    for share in (0, 0.5, 1):
        _, y = place(ends[0], share)
        line = f'x1="{left}" x2="{left + width + 40}" y1="{y:g}" y2="{y:g}" stroke="{LINE}"'
        parts += [f"<line {line}/>", text(left - 8, y + 4, f"{100 * share:g} %", "end")]
    for count in ends:
        parts.append(text(place(count, 0)[0], top + height + 20, str(count), "middle"))
    colours = dict(zip(results, (BETTER, WORSE, "#64748b", "#fbbf24"), strict=False))
    for plant, of_plant in results.items():
        places = [place(count, right / logs) for count, (right, logs, _) in of_plant.items()]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colours[plant]}"/>')
        for (x, y), count in zip(places, of_plant, strict=True):
            words = escape(f"{plant}, {count} episodes: {of_plant[count][2]}")
            circle = f'cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colours[plant]}"'
            parts.append(f"<circle {circle}><title>{words}</title></circle>")
    words = "episodes of the log"
    parts.append(text(left + 20 + width / 2, top + height + 40, words, "middle"))
    parts += legend(left, top + height + 64, ((colours[plant], plant) for plant in results))
    return figure(left + width + 50, top + height + 80, "Trials over the length of a log", parts)


def _peers(case: dict[str, Any]) -> list[str]:
    return [peer for peer in PEERS if peer in case["times"]]


def _ratio(case: dict[str, Any], peer: str) -> float:
    times = case["times"]
    return times[peer]["median"] / times["ours"]["median"]
