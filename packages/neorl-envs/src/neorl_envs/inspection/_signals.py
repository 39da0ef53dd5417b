"""Detects mislabelled signals: exchanged measurements, and modes that the actuator contradicts."""

import re
from collections.abc import Mapping
from typing import Any

from neorl_envs.datasets._dataset import Dataset
from neorl_envs.inspection._contradictions import time_report
from neorl_envs.inspection._modes import modes
from neorl_envs.inspection._sample import Sample, episodes_sample
from neorl_envs.inspection._swapped import swapped_pairs
from neorl_envs.inspection._wording import began

REPEATED = re.compile(r"\[-\d+\]$")
"""Names of channels that repeat an earlier row, such as ``level[-1]``."""
# The numbers were set by hand; the loops of test_signals.py are on the right side of them. On the
# one log with modes of tools/studies/tables/choice/log_thresholds.py there is no false alarm, and
# modes are recognised as wrong if they are all manual, all automatic or reversed. With each number
# halved this does not change; the notes say what happens when it is doubled.
BY_HAND = 0.5
"""An actuator that moves in a larger fraction of the steps is not moved by hand; with 1, only modes
that are all automatic are recognised."""
STILL = 0.05
"""Largest unsuspicious fraction of the steps in automatic that belong to long standstills; with
0.1, modes that are all automatic are not recognised."""
LIVELY = 0.5
"""Standstills are suspicious only if the actuator moves in a larger fraction of the other steps;
with 1, modes that are all automatic are not recognised."""


def signal_warnings(dataset: Dataset) -> list[str]:
    """Sentences on signals of a log that appear to be mislabelled.

    Args:
        dataset: The log.

    Returns:
        The sentences of :func:`dataset_report` on exchanged measurements and on modes that the
        actuator contradicts; empty if there are none.
    """
    return signal_sentences(signals(dataset, episodes_sample(dataset)), time_report(dataset))


def skipped_names(dataset: Dataset) -> set[str]:
    """Observations that may stand still, such as setpoints, or that repeat another row."""
    repeated = {channel.name for channel in dataset.spec.obs if REPEATED.search(channel.name)}
    return repeated | setpoint_names(dataset)


def setpoint_names(dataset: Dataset) -> set[str]:
    """Observations that the log declares as setpoints."""
    return {
        str(entry.get("name") if isinstance(entry, dict) else entry)
        for entry in dataset.attributes.get("setpoints") or ()
    }


def signals(dataset: Dataset, sample: Sample) -> dict[str, Any]:
    """Report entries on signals that appear to be mislabelled."""
    return {
        "swapped": swapped_pairs(sample, dataset, skipped_names(dataset)),
        "modes": modes(sample, dataset),
    }


def signal_sentences(entries: Mapping[str, Any], time: dict[str, Any] | None) -> list[str]:
    """The entries of :func:`signals` as sentences.

    ``time`` is the report on the recorded times; ``None`` if the log has none.
    """
    sentences = [
        f"{' and '.join(pair['names'])} appear to be exchanged from {began(pair, time)} on: "
        "those rows fit the rest of the log only with the two exchanged; exchange the two tags "
        "there, or leave the rows out"
        for pair in entries["swapped"]
    ]
    return sentences + [one for entry in entries["modes"] for one in _mode_sentences(entry)]


def _mode_sentences(entry: dict[str, Any]) -> list[str]:
    sentences = []
    if entry["moves_in_manual"] > BY_HAND:
        sentences.append(
            f"{entry['name']} is in manual in {entry['manual']:.0%} of the steps by its mode, yet "
            f"moves in {entry['moves_in_manual']:.0%} of them, as a controller would move it "
            "and an operator would not: check which words its mode has under automatic in "
            "plant.toml, and whether the tag is the mode of this loop"
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
