"""How often declared interlocks acted in a log, and where the log contradicts them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool

from neorl_core import InputError, Spec
from neorl_envs.datasets._checks import blocks
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.plant_logs._declared._interlocks import CheckedInterlock, checked_interlocks

TOLERANCE = 0.005
"""Largest difference between a logged action and what an interlock sets, relative to the range."""


class Contradiction(NamedTuple):
    """Rows in which an interlock should have set an action to another value than the logged one.

    Attributes:
        action: Name of the action.
        unit: Its unit.
        rows: Number of these rows.
        first: The first of them.
        logged: The logged action in that row.
        declared: What the interlock sets there.
        largest: Largest difference.
    """

    action: str
    unit: str
    rows: int
    first: int
    logged: float
    declared: float
    largest: float


class Activity(NamedTuple):
    """What a log shows of one interlock; masked rows do not count.

    Attributes:
        name: Name of the interlock.
        sentence: What it does.
        rows: Number of rows.
        active: Number of rows in which its condition holds.
        episodes: Number of episodes with such a row.
        contradictions: One entry for each action whose logged value differs.
    """

    name: str
    sentence: str
    rows: int
    active: int
    episodes: int
    contradictions: tuple[Contradiction, ...]

    @property
    def always(self) -> bool:
        """Whether the condition holds in every row."""
        return self.rows > 0 and self.active == self.rows


def declared_interlocks(dataset: Dataset) -> tuple[CheckedInterlock, ...]:
    """The interlocks of a log, which ``plant.toml`` declared; none if it has no such attribute.

    Raises:
        InputError: If the log does not have the channels that they name, or the tables are damaged.
    """
    try:
        named = [
            (str(one["name"]), one["when"], dict(one["set"]))
            for one in dataset.attributes.get("interlocks", ())
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            "the attribute interlocks of the dataset is damaged; convert the log again"
        ) from error
    return checked_interlocks(named, dataset.spec.obs, dataset.spec.action, "plant.toml")


def interlock_activity(
    dataset: Dataset, interlocks: Sequence[CheckedInterlock]
) -> tuple[Activity, ...]:
    """Compares interlocks with the rows of a log.

    A row contradicts an interlock if its condition holds and the logged action differs from what
    the interlock sets by more than 0.5 % of the range of the action, unless a later interlock sets
    the same action in that row.
    """
    if not interlocks:
        return ()
    rows: Any = dataset.transitions
    counted = [_Counted(one, dataset) for one in interlocks]
    for part in blocks(dataset.n_rows, rows.obs, rows.action):
        columns = _columns(dataset.spec, rows.obs[part], rows.action[part])
        known = np.asarray(rows.mask[part], bool)
        active = [one.when.expression(columns) == 1 for one in interlocks]
        overridden = dict.fromkeys(
            (channel.name for channel in dataset.spec.action), np.zeros(len(known), bool)
        )
        # From the last to the first, because a later interlock has the last word.
        for one, acts, entry in reversed(list(zip(interlocks, active, counted, strict=True))):
            entry.add(columns, acts & known, overridden, part.start)
            overridden |= {tag: overridden[tag] | acts for tag in one.values}
    n_rows = int(np.asarray(rows.mask, bool).sum())
    return tuple(entry.activity(n_rows) for entry in counted)


def always_active(one: Activity) -> str:
    """Says that a condition that always holds cannot be that of an interlock."""
    return (
        f"plant.toml: [[interlock]] {one.name!r}: its condition holds in all {one.rows} rows of "
        f"the log ({one.sentence}), so no controller ever acted and nothing can be learned about "
        "one; correct the condition or its unit, and convert the log again"
    )


class _Counted:
    """The counts of one interlock over the blocks of a log."""

    def __init__(self, one: CheckedInterlock, dataset: Dataset) -> None:
        self._one, self._starts = one, dataset.episode_starts
        self._channels = {channel.name: channel for channel in dataset.spec.action}
        self._active = 0
        self._episodes: set[int] = set()
        self._found: dict[str, Contradiction] = {}

    def add(
        self,
        columns: Mapping[str, np.ndarray],
        acts: Bool[np.ndarray, " row"],
        overridden: Mapping[str, Bool[np.ndarray, " row"]],
        start: int,
    ) -> None:
        """Counts the rows of a block that begins with row ``start``."""
        self._active += int(acts.sum())
        indices = np.flatnonzero(acts) + start
        episodes = np.searchsorted(self._starts, indices, side="right")
        self._episodes.update(np.unique(episodes).tolist())
        for tag, term in self._one.values.items():
            channel = self._channels[tag]
            value = np.clip(term.expression(columns), channel.low, channel.high)
            difference = np.where(acts & ~overridden[tag], np.abs(columns[tag] - value), 0.0)
            wrong = np.flatnonzero(difference > TOLERANCE * (channel.high - channel.low))
            if not len(wrong):
                continue
            first = wrong[0]
            at = (int(first) + start, float(columns[tag][first]), float(value[first]))
            before = self._found.get(tag, Contradiction(tag, channel.unit, 0, *at, 0.0))
            self._found[tag] = before._replace(
                rows=before.rows + len(wrong),
                largest=max(before.largest, float(difference[wrong].max())),
            )

    def activity(self, rows: int) -> Activity:
        """The result, for a log with so many rows that are not masked."""
        one = self._one
        found = tuple(self._found.values())
        return Activity(one.name, one.sentence, rows, self._active, len(self._episodes), found)


def _columns(spec: Spec, obs: Any, action: Any) -> dict[str, np.ndarray]:
    channels = (*spec.obs, *spec.action)
    values = np.concatenate([np.asarray(obs, np.float64), np.asarray(action, np.float64)], axis=1)
    return {channel.name: values[:, i] for i, channel in enumerate(channels)}
