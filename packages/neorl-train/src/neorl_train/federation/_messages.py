"""The messages: everything that leaves a site, and nothing else does."""

from typing import Any, NamedTuple

import jax
import numpy as np

from neorl_core import Channel, CostChannel, DataStatistics, InputError, Spec


class Introduction(NamedTuple):
    """Description that a site sends before the first round.

    Attributes:
        site: Name of the site.
        rows: Number of rows on which it trains.
        spec: Channels of its plant.
        statistics: Counts, means, standard deviations and ranges of its training rows, one number
            per channel; ``None`` if networks are scaled by declared ranges.
    """

    site: str
    rows: int
    spec: Spec
    statistics: DataStatistics | None


class RoundStart(NamedTuple):
    """Message of the server to a site when a round begins.

    Attributes:
        round: Number of the round, from 0.
        parameters: The common parameters, float32, shape ``(parameter,)``.
        present: Names of the participating sites, among which masks must cancel.
        attempt: Number of earlier attempts at the sum of this round.
    """

    round: int
    parameters: np.ndarray
    present: tuple[str, ...] = ()
    attempt: int = 0


class Update(NamedTuple):
    """Answer of a site.

    Attributes:
        site: Name of the site.
        round: Number of the round.
        rows: Number of rows on which it trains, as in its introduction.
        arrays: The change of its parameters, either unencoded (one float32 vector) or encoded.
    """

    site: str
    round: int
    rows: int
    arrays: tuple[np.ndarray, ...]


def n_bytes(message: Any) -> int:
    """Size of a message's arrays in bytes."""
    return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(message) if _is_array(leaf))


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | jax.Array)


def check_introductions(introductions: list[Introduction]) -> None:
    """Refuses sites that do not have the same plant, or whose numbers are impossible.

    Raises:
        InputError: Names the site, the channel, the expected value and the actual one.
    """
    first = introductions[0]
    for introduction in introductions:
        _check_same_plant(first, introduction)
        _check_counts(introduction)


def _check_same_plant(first: Introduction, other: Introduction) -> None:
    for field, kind in (("obs", "observed"), ("action", "action"), ("cost", "cost")):
        ours, theirs = getattr(first.spec, field), getattr(other.spec, field)
        if len(ours) != len(theirs):
            raise InputError(
                f"site {other.site} has {len(theirs)} {kind} channels "
                f"({_names(theirs)}), site {first.site} has {len(ours)} ({_names(ours)}); only "
                "sites with the same channels can train one policy"
            )
        for own, other_channel in zip(ours, theirs, strict=True):
            if own != other_channel:
                raise InputError(
                    f"site {other.site} has the {kind} channel {_described(other_channel)}, where "
                    f"site {first.site} has {_described(own)}; convert its log to the same "
                    "channels, units and ranges, or leave the site out"
                )
    if first.spec.dt != other.spec.dt:
        raise InputError(
            f"site {other.site} has a control period of {other.spec.dt:g} s, site {first.site} one "
            f"of {first.spec.dt:g} s; resample its log, or leave the site out"
        )


def _names(channels: tuple[Any, ...]) -> str:
    return ", ".join(channel.name for channel in channels) or "none"


def _described(channel: Channel | CostChannel) -> str:
    if isinstance(channel, Channel):
        return f"{channel.name} ({channel.low:g} to {channel.high:g} {channel.unit})"
    return f"{channel.name} (limit {channel.limit:g} {channel.unit} per {channel.per})"


def _check_counts(introduction: Introduction) -> None:
    """Requires rows, and statistics over the claimed number of rows."""
    if introduction.rows < 1:
        raise InputError(
            f"site {introduction.site} reports {introduction.rows} rows, and a site needs at least "
            "one to train on"
        )
    if introduction.statistics is None:
        return
    for name, channels in (("obs", introduction.spec.obs), ("action", introduction.spec.action)):
        field = getattr(introduction.statistics, name)
        if round(float(field.count)) != introduction.rows and not _equal_in_float32(
            field.count, introduction.rows
        ):
            raise InputError(
                f"site {introduction.site} reports {introduction.rows} rows, but its statistics of "
                f"{name} count {float(field.count):.0f}; these numbers contradict each other, so "
                "leave the site out"
            )
        for i, channel in enumerate(channels):
            _check_field(introduction.site, channel, *(float(np.asarray(x)[i]) for x in field[1:]))
    for name in ("reward", "episode_return"):
        field = getattr(introduction.statistics, name)
        if not all(np.isfinite(np.asarray(x)).all() for x in field):
            raise InputError(
                f"site {introduction.site} sends statistics of {name} that are not finite; check "
                "its log"
            )


def _equal_in_float32(count: Any, rows: int) -> bool:
    """Float32 holds integers up to 2 ** 24 exactly."""
    return abs(float(count) - rows) <= rows * 1e-6


def _check_field(
    site: str, channel: Channel, mean: float, std: float, low: float, high: float
) -> None:
    slack = 1e-3 * max(abs(low), abs(high), abs(channel.high - channel.low))
    possible = (
        np.isfinite([mean, std, low, high]).all()
        and low - slack <= mean <= high + slack
        and 0 <= std <= (high - low) / 2 + slack
    )
    if not possible:
        raise InputError(
            f"site {site} sends statistics of {channel.name} that no data can have: mean {mean:g}, "
            f"deviation {std:g}, from {low:g} to {high:g} {channel.unit}; leave the site out, or "
            'scale by declared ranges with federation.scaling = "declared"'
        )
    outside = mean < channel.low - slack or mean > channel.high + slack
    if outside:
        raise InputError(
            f"site {site} sends a mean of {channel.name} of {mean:g} {channel.unit}, outside its "
            f"measuring range from {channel.low:g} to {channel.high:g} {channel.unit}; its log has "
            "other units, or its statistics are wrong"
        )
