"""Selects the channels of a plant to draw, and groups them into panels."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from neorl_core import Channel
from neorl_core.infrastructure import unknown_name

ALL = "all"
FEWEST = 3
WORDS = re.compile(r"_|(?<=[A-Za-z])(?=\d+$)")


class Panel(NamedTuple):
    """Channels that are drawn in one panel.

    Attributes:
        label: Common beginning of their names, or the name of a single channel.
        unit: Their common unit.
        channels: Their indices among the channels of the plant.
        names: The distinguishing parts of their names; empty for a single channel.
    """

    label: str
    unit: str
    channels: tuple[int, ...]
    names: tuple[str, ...] = ()


def panels(
    channels: Sequence[Channel], requested: Sequence[str] | None = None
) -> tuple[Panel, ...]:
    """Groups runs of similar channels, such as ``T_zone_1`` to ``T_zone_6``, into one panel each.

    Channels form a group if at least three in a row have the same unit, the same number of words in
    their names, and the same first words.

    ``requested`` names channels to draw, each in its own panel, in this order; ``("all",)`` stands
    for every channel, ``None`` for all channels in groups. Raises an ``InputError`` if a name is
    unknown; the message suggests the nearest one.
    """
    names = [channel.name for channel in channels]
    if requested is not None:
        chosen = names if tuple(requested) == (ALL,) else requested
        for name in chosen:
            if name not in names:
                raise unknown_name("channel", name, [*names, ALL])
        return tuple(_one(channels, names.index(name)) for name in chosen)
    result: list[Panel] = []
    start = 0
    while start < len(channels):
        end, label = _alike(channels, start)
        if end - start < FEWEST:
            result.append(_one(channels, start))
            start += 1
            continue
        tails = tuple(name[len(label) :].lstrip("_") for name in names[start:end])
        result.append(Panel(label, channels[start].unit, tuple(range(start, end)), tails))
        start = end
    return tuple(result)


def measured_panels(
    channels: Sequence[Channel],
    bands: Mapping[str, tuple[float, float]],
    tracked: Mapping[str, str],
    requested: Sequence[str] | None,
) -> tuple[Panel, ...]:
    """Panels of the measurements.

    These are the requested channels if any; otherwise those with a limit or a setpoint; and if
    there are none of these, all channels in groups.
    """
    if requested is None:
        important = [c.name for c in channels if c.name in bands or c.name in tracked]
        requested = important or None
    return panels(channels, requested)


def _one(channels: Sequence[Channel], i: int) -> Panel:
    return Panel(channels[i].name, channels[i].unit, (i,))


def _alike(channels: Sequence[Channel], start: int) -> tuple[int, str]:
    """The end of a run of similar channels, and the common beginning of their names."""
    first = WORDS.split(channels[start].name)
    shared = len(first) - 1
    end = start + 1
    while end < len(channels) and channels[end].unit == channels[start].unit:
        name_parts = WORDS.split(channels[end].name)
        same = next(
            (i for i, (a, b) in enumerate(zip(name_parts, first, strict=False)) if a != b), 0
        )
        if len(name_parts) != len(first) or not same or (end > start + 1 and same < shared):
            break
        shared = min(shared, same)
        end += 1
    name = channels[start].name
    ends = [match.start() for match in WORDS.finditer(name)]
    return end, name[: ends[shared - 1]] if ends and shared else name
