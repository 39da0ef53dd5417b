"""Process diagrams of the plants and what their channels are, from ``plant_diagrams.toml``.

`built` puts them into the pages of the plants and into their gallery. A diagram is an inline SVG
whose colours are those of the site's theme, so that it can be read in light and dark. What flows
has arrows; measured channels have a blue frame, manipulated ones an orange ground.
"""

import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".toml")
CHARACTER, PADDING, HEIGHT = 7.3, 12, 20
"""Width of a character of a tag, and room to its sides and height, in pixels."""
ABOVE = 32
"""Distance from a bus up to its tag, in pixels."""
HEAD = (
    '<defs><marker id="{0}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="10" markerHeight="10" '
    'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>'
)


@cache
def drawn() -> dict[str, Any]:
    """The file by plant: ``about``, ``story``, ``drawing`` and ``channels``."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def named(words: str, channels: Sequence[str]) -> list[str]:
    """The channels that a name or ``FIRST..LAST`` stands for; none if the plant has no such.

    Args:
        words: As in the file.
        channels: Names of the plant's measured or manipulated channels, in order.
    """
    first, _, last = words.partition("..")
    if first not in channels or (last or first) not in channels:
        return []
    return list(channels[channels.index(first) : channels.index(last or first) + 1])


def explained(plant: str, kind: str, channels: Sequence[str]) -> dict[str, str]:
    """What each channel is, by name in the order of the plant.

    Args:
        plant: Name of the plant.
        kind: ``"measured"`` or ``"manipulated"``; a channel can be both, with a text for each.
        channels: Their names.

    Raises:
        KeyError: If a channel is not explained.
    """
    tables = (drawn()[plant].get("channels", {}), drawn()[plant].get(kind, {}))
    texts = {
        name: text
        for table in tables
        for words, text in table.items()
        for name in named(words, channels)
    }
    return {name: texts[name] for name in channels}


def tags(plant: str) -> list[tuple[str, float, float, float]]:
    """The tags of a diagram: name as it is written, left, middle and width, in pixels."""
    lines = [line.split() for line in drawn()[plant]["drawing"].strip().splitlines()]
    found = []
    for kind, *words in lines:
        if kind in ("tag", "bus"):
            x, y, name = float(words[0]), float(words[1]), words[2]
            width = _width(name)
            found.append((name, x - width / 2, y - ABOVE * (kind == "bus"), width))
    return found


def diagram(plant: str, measured: Sequence[str], manipulated: Sequence[str]) -> str:
    """The process diagram of a plant as inline SVG.

    Args:
        plant: Its name.
        measured: Names of its measured channels.
        manipulated: Names of its manipulated channels.

    Raises:
        ValueError: If a line of the drawing has an unknown kind.
    """
    lines = [line.split() for line in drawn()[plant]["drawing"].strip().splitlines()]
    width, height = lines[0][1:]
    arrow = f"arrow-{plant}"
    parts = [HEAD.format(arrow)]
    for kind, *words in lines[1:]:
        if kind in ("box", "vessel"):
            x, y, w, h = map(float, words[:4])
            parts.append(
                f'<rect class="unit" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" '
                f'rx="{24 if kind == "vessel" else 4}"/>'
            )
            parts += _text(x + w / 2, y + (16 if h > 40 else h / 2 + 5), words[4:])
        elif kind in ("pipe", "line", "signal"):
            end = "" if kind == "line" else f' marker-end="url(#{arrow})"'
            parts.append(f'<polyline class="{kind}" points="{" ".join(words)}"{end}/>')
        elif kind == "spring":
            parts.append(f'<polyline class="line" points="{_zigzag(*map(float, words))}"/>')
        elif kind in ("joint", "bus", "machine"):
            parts += _symbol(kind, float(words[0]), float(words[1]), words[2:], measured)
        elif kind == "text":
            parts += _text(float(words[0]), float(words[1]), words[2:])
        elif kind == "tag":
            parts += _tag(words, measured, manipulated)
        else:
            raise ValueError(f"{plant}: {kind!r} is no element of a drawing")
    words = f"Process diagram of {plant} with its {len(tags(plant))} tags"
    return (
        f'<div class="figure diagram"><svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'aria-label="{words}" viewBox="0 0 {width} {height}" '
        f'style="max-width: {width}px">{"".join(parts)}</svg></div>'
    )


def _text(x: float, y: float, words: Iterable[str]) -> list[str]:
    line = escape(" ".join(words))
    return [f'<text x="{x:g}" y="{y:g}">{line}</text>'] if line else []


def _zigzag(x: float, y: float, end: float) -> str:
    step = (end - x) / 10
    middle = (f"{x + step * (i + 0.5):g} {y + (8 if i % 2 else -8):g}" for i in range(1, 9))
    return f"{x:g} {y:g} {x + step:g} {y:g} {' '.join(middle)} {end - step:g} {y:g} {end:g} {y:g}"


def _symbol(kind: str, x: float, y: float, words: list[str], measured: Sequence[str]) -> list[str]:
    if kind == "bus":
        bar = f'<line class="bus" x1="{x:g}" x2="{x:g}" y1="{y - 18:g}" y2="{y + 18:g}"/>'
        return [bar, *_tag([f"{x:g}", f"{y - ABOVE:g}", *words], measured, ())]
    radius = 18 if kind == "machine" else 7
    return [f'<circle class="unit" cx="{x:g}" cy="{y:g}" r="{radius}"/>', *_text(x, y + 5, words)]


def _shown(name: str) -> str:
    return name.replace("..", " … ")


def _width(name: str) -> float:
    return CHARACTER * len(_shown(name)) + PADDING


def _tag(words: list[str], measured: Sequence[str], manipulated: Sequence[str]) -> list[str]:
    x, y, name, *target = words
    kinds = [
        kind
        for kind, channels in (("measured", measured), ("manipulated", manipulated))
        if named(name, channels)
    ]
    shown, width = _shown(name), _width(name)
    parts = []
    if target:
        parts.append(f'<polyline class="lead" points="{x} {y} {" ".join(target)}"/>')
    return [
        *parts,
        f'<g class="tag {" ".join(kinds)}"><title>{", ".join(kinds)}: {shown}</title>'
        f'<rect x="{float(x) - width / 2:g}" y="{float(y) - HEIGHT / 2:g}" width="{width:g}" '
        f'height="{HEIGHT}" rx="{HEIGHT / 2:g}"/>'
        f'<text x="{x}" y="{float(y) + 4:g}">{shown}</text></g>',
    ]
