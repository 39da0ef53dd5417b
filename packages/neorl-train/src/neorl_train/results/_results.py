"""Raw results: the episodes of every policy, before any statistics."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from neorl_core import Spec
from neorl_envs import Dataset
from neorl_train.evaluation._benchmark_score import Score
from neorl_train.evaluation._episodes import Episodes
from neorl_train.evaluation._shadow import ActionFit
from neorl_train.evaluation._traces import Trace
from neorl_train.results._tables import ResultTables, Role

LOG = "log"
_SEEDED = re.compile(r"(?P<group>.+)-(?P<seed>\d+)")


@dataclasses.dataclass(frozen=True)
class PolicyResult:
    """Episodes of one policy, with or without guard.

    Attributes:
        name: For example ``"iql-0"``.
        group: What it is one seed of, for example ``"iql"``; its own name otherwise.
        role: ``"learner"``; ``"classical"``, a controller of the plant; ``"behaviour"``, what
            filled the log, on the common starts; ``"log"``, the recorded episodes, which have
            starts of their own.
        guarded: Whether the guard stood between it and the plant.
        episodes: One entry for each common start, or for each recorded episode.
    """

    name: str
    group: str
    role: Role
    guarded: bool
    episodes: Episodes

    @property
    def paired(self) -> bool:
        """Whether its episodes are those of the common starts."""
        return self.role != LOG


@dataclasses.dataclass(frozen=True)
class Band:
    """Soft limits of one observed channel, in its unit; infinite where there is none.

    Attributes:
        channel: Name of the channel.
        low: Lower limit.
        high: Upper limit.
    """

    channel: str
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Excitation:
    """What happened to one manipulated variable while the log was filled.

    Attributes:
        channel: Name of the variable.
        unit: Of ``signal`` and ``deviation``.
        signal: Amplitude of the test signal.
        manual: Share of the steps in which it was in manual.
        deviation: Standard deviation of the action that the plant received.
    """

    channel: str
    unit: str
    signal: float
    manual: float
    deviation: float


@dataclasses.dataclass(frozen=True)
class Source:
    """The log that was learnt from.

    Attributes:
        name: Of the data.
        rows: Number of transitions.
        episodes: Number of episodes.
        content_hash: Of the file's content.
        attribution: Whose data they are; empty for a log of the simulator.
        excitation: One entry for each manipulated variable, where the log says so.
    """

    name: str
    rows: int
    episodes: int
    content_hash: str
    attribution: str
    excitation: tuple[Excitation, ...]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What an evaluation found.

    Attributes:
        tables: Means with intervals: all that the verdict depends on.
        results: The episodes behind them.
        traces: A few episodes row by row, of the guarded candidate and of the reference.
        bands: Soft limits of observed channels, to be drawn with a trend.
        imitation: How each learner's actions compare with the logged ones on episodes that it
            was not trained on; empty where there was a simulator.
        score: Score of the log by the published formula, where one is known.
        source: The log.
    """

    tables: ResultTables
    results: tuple[PolicyResult, ...]
    traces: tuple[Trace, ...]
    bands: tuple[Band, ...]
    imitation: tuple[ActionFit, ...]
    score: Score | None
    source: Source


def source_of(dataset: Dataset) -> Source:
    """What the file says of itself."""
    return Source(
        name=str(dataset.attributes.get("name", "log")),
        rows=dataset.n_rows,
        episodes=dataset.n_episodes,
        content_hash=dataset.content_hash,
        attribution=str(dataset.attributes.get("attribution", "")),
        excitation=tuple(_excitation(entry) for entry in _channels(dataset)),
    )


def _channels(dataset: Dataset) -> list[Mapping[str, Any]]:
    excitation = dataset.attributes.get("excitation", {})
    return list(excitation.get("channels", [])) if isinstance(excitation, Mapping) else []


def _excitation(entry: Mapping[str, Any]) -> Excitation:
    return Excitation(
        channel=str(entry.get("channel", "")),
        unit=str(entry.get("unit", "")),
        signal=float(entry.get("prbs_amplitude", math.nan)),
        manual=float(entry.get("manual_share_of_steps", math.nan)),
        deviation=float(entry.get("action_std", math.nan)),
    )


def group_of(name: str) -> str:
    """``"iql"`` for ``"iql-3"``; a name without a seed is its own group."""
    seeded = _SEEDED.fullmatch(name)
    return seeded["group"] if seeded else name


def check_names(names: Sequence[str], *, candidate: str, taken: Sequence[str]) -> None:
    """Refuses a candidate that is not there and a policy that bears the name of another.

    Raises:
        ValueError: With the known names.
    """
    if candidate not in names:
        raise ValueError(
            f"the candidate {candidate!r} is not among the policies: {', '.join(names) or 'none'}"
        )
    clash = sorted(set(names) & set(taken))
    if clash:
        raise ValueError(f"{', '.join(clash)}: already the name of a controller; rename the policy")


def check_spec(spec: Spec, dataset_spec: Spec, environment: str) -> None:
    """Refuses a log of another plant than the simulator's.

    Raises:
        ValueError: Naming what differs.
    """
    for field in ("obs", "action", "cost", "dt"):
        ours, theirs = getattr(spec, field), getattr(dataset_spec, field)
        if ours != theirs:
            raise ValueError(
                f"the log is of another plant than {environment}: its {field} is {theirs}, "
                f"the simulator's {ours}; evaluate without environment"
            )
