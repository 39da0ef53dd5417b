"""Signals that are not what they say: exchanged with another, or in another mode."""

import re
from collections.abc import Mapping
from typing import Any

from neorl_envs.datasets._dataset import Dataset
from neorl_envs.inspection._contradictions import time_report
from neorl_envs.inspection._modes import modes
from neorl_envs.inspection._sample import Sample, episodes_sample
from neorl_envs.inspection._swapped import swapped
from neorl_envs.inspection._wording import began

REPEATED = re.compile(r"\[-\d+\]$")
"""Name of a channel that repeats an earlier row, as ``level[-1]``."""
BY_HAND = 0.5
"""An actuator that moves in a larger share of the steps is not moved by hand."""
STILL = 0.05
"""Share of the steps in automatic that an actuator may stand still for long."""
LIVELY = 0.5
"""Only of an actuator that moves in a larger share of the other steps, standing still is odd."""


def signal_doubts(dataset: Dataset) -> list[str]:
    """Signals of a log that are not what they say, each in a sentence.

    Args:
        dataset: The log.

    Returns:
        Sentences on measurements that changed places and on modes that the actuator contradicts,
        the same as in :func:`dataset_report`; none where there is no doubt.
    """
    return signal_sentences(signals(dataset, episodes_sample(dataset)), time_report(dataset))


def unwatched(dataset: Dataset) -> set[str]:
    """Observations that stand still by intent, as set points do, or that repeat another row."""
    names = {channel.name for channel in dataset.spec.obs if REPEATED.search(channel.name)}
    for entry in dataset.attributes.get("setpoints") or ():
        names.add(str(entry.get("name") if isinstance(entry, dict) else entry))
    return names


def signals(dataset: Dataset, sample: Sample) -> dict[str, Any]:
    """Entries of a report on signals that are not what they say.

    Args:
        dataset: The log.
        sample: Rows of it.
    """
    return {
        "swapped": swapped(sample, dataset, unwatched(dataset)),
        "modes": modes(sample, dataset),
    }


def signal_sentences(found: Mapping[str, Any], time: dict[str, Any] | None) -> list[str]:
    """The entries of :func:`signals` in words.

    Args:
        found: The entries.
        time: Report on the stamps; ``None`` where the log has none.
    """
    sentences = [
        f"{' and '.join(pair['names'])} seem to change places from {began(pair, time)} on: what "
        "follows them fits the rest of the log only if both are exchanged there; exchange the two "
        "tags in those rows, or leave the rows out"
        for pair in found["swapped"]
    ]
    return sentences + [one for entry in found["modes"] for one in _mode_sentences(entry)]


def _mode_sentences(entry: dict[str, Any]) -> list[str]:
    sentences = []
    if entry["moves_in_manual"] > BY_HAND:
        sentences.append(
            f"{entry['name']} is in manual in {entry['manual']:.0%} of the steps by its mode, yet "
            f"moves in {entry['moves_in_manual']:.0%} of them, as a controller moves it and no "
            "operator does: check which words its mode has under automatic in plant.toml, and "
            "whether the tag is the mode of this loop"
        )
    if entry["still_in_automatic"] > STILL and entry["moves_in_automatic"] > LIVELY:
        sentences.append(
            f"{entry['name']} stands still for long, inside its range, in "
            f"{entry['still_in_automatic']:.0%} of the steps that its mode calls automatic, and "
            f"moves in {entry['moves_in_automatic']:.0%} of the others: if it was in manual there, "
            "the log shows an operator and not the controller; check the mode, or leave these "
            "rows out"
        )
    return sentences
