"""Description of a dataset for the results."""

import math
from collections.abc import Mapping
from typing import Any

from neorl_envs import Dataset
from neorl_train.judging._results import Excitation, Source

NO_LOG = Source(name="no log", rows=0, episodes=0, content_hash="", attribution="", excitation=())
"""Describes an evaluation without a log."""


def source_of(dataset: Dataset | None) -> Source:
    """Description of a dataset; :data:`NO_LOG` if there is none."""
    if dataset is None:
        return NO_LOG
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
        manual=float(entry.get("manual_fraction_of_steps", math.nan)),
        deviation=float(entry.get("action_std", math.nan)),
    )
