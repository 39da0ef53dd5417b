"""Detects mislabelled signals: exchanged measurements, and modes that the actuator contradicts."""

import itertools
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from neorl_envs.datasets._dataset import Dataset
from neorl_envs.inspection._channels import Sample, episodes_sample, modes
from neorl_envs.inspection._contradictions import time_report
from neorl_envs.inspection._wording import began

# Detects two measurements that were exchanged within a log, such as by mixed-up cables or tags.


# The numbers were set by hand; the tanks of test_signals.py are on the right side of them. On the
# logs of four plants there is no false alarm, and 6 of 7 exchanged pairs are found. With each
# number halved or doubled (of the ratios, the distance from one) there is no false alarm either;
# the notes say where the number of pairs changes (tools/studies/tables/choice/log_thresholds.py).
FITTED = 1 / 3
"""Fraction of the rows at either end of the log that is assumed to be correct; with 1/6 or 2/3, 5
pairs are found."""
WORSE = 1.5
"""Exchanging two channels must reduce the errors after the swap by at least this factor; with 1.25,
7 pairs are found, with 2, 5."""
ALIKE = 1.5
"""With the channels exchanged, errors may exceed those of the fitted rows by up to this factor."""
SUSPECT = 1.1
"""A pair is checked if the errors of either channel grow by this factor outside those rows."""
FEWEST_ROWS, MOST_ROWS = 100, 20_000


def swapped_pairs(
    sample: Sample, dataset: Dataset, skipped: Collection[str]
) -> list[dict[str, Any]]:
    """Pairs of measurements with the same unit that appear to be exchanged within the log.

    A linear one-step model is fitted to the first third of the rows. Two measurements have been
    exchanged if, after some row, the model predicts them badly, but well with the two exchanged.
    The same test is run backwards from the last third.

    Returns for each pair the two names, the first row after the exchange, and its time.
    """
    channels = dataset.spec.obs
    pairs = [
        (i, j)
        for i, j in itertools.combinations(range(len(channels)), 2)
        if channels[i].unit == channels[j].unit
        and not {channels[i].name, channels[j].name} & set(skipped)
    ]
    follows = np.append(np.diff(sample.episode) == 0, False)
    inputs = np.concatenate([sample.obs, sample.action], axis=1)
    finite: np.ndarray = np.all(np.isfinite(inputs), axis=1)
    rows = np.flatnonzero(follows & finite & np.append(finite[1:], False))
    rows = rows[:: max(1, -(-len(rows) // MOST_ROWS))]
    if not pairs or len(rows) < 3 * FEWEST_ROWS:
        return []
    first_rows: dict[tuple[int, int], int] = {}
    for order in (rows, rows[::-1]):
        obs, after = sample.obs[order], sample.obs[order + 1]
        fitted = slice(int(FITTED * len(order)))
        action = sample.action[order]
        weight = _model(obs[fitted], action[fitted], after[fitted])
        predicted = _design(obs, action) @ weight
        squared_errors = np.square(after - predicted)
        suspect = squared_errors[fitted.stop :].mean(axis=0) > SUSPECT * squared_errors[
            fitted
        ].mean(axis=0)
        for pair in pairs:
            if not suspect[list(pair)].any():
                continue
            errors = squared_errors[:, list(pair)].sum(axis=1)
            others = _exchanged_errors(weight, obs, after, predicted, pair)
            first_index = _begin(errors, others, errors[fitted].mean())
            if first_index is not None:
                first = order[first_index] if order is rows else order[first_index] + 1
                first_rows.setdefault(pair, int(sample.row[first]))
    time, dt = dataset.time, dataset.spec.dt
    return [
        {
            "names": [channels[i].name, channels[j].name],
            "row": row,
            "start": float(row * dt if time is None else time[row]),
        }
        for (i, j), row in first_rows.items()
    ]


def _model(obs: np.ndarray, action: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Least-squares weights of the next observation on the observation, action and a constant."""
    return np.linalg.lstsq(_design(obs, action), after, rcond=None)[0]


def _design(obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    return np.concatenate([obs, action, np.ones((len(obs), 1))], axis=1)


def _exchanged_errors(
    weight: np.ndarray,
    obs: np.ndarray,
    after: np.ndarray,
    predicted: np.ndarray,
    pair: tuple[int, int],
) -> np.ndarray:
    """Sum of the squared errors of a pair in each row, with its two channels exchanged.

    Of the predictions without the exchange, only what the two channels contribute changes; a plant
    with 30 channels has hundreds of pairs, and a product of matrices for each took most of the
    report's time.
    """
    (i, j), both = pair, list(pair)
    moved = np.outer(obs[:, j] - obs[:, i], weight[i, both] - weight[j, both])
    return np.square(after[:, [j, i]] - predicted[:, both] - moved).sum(axis=1)


def _begin(errors: np.ndarray, others: np.ndarray, usual_error: float) -> int | None:
    """The first row with exchanged channels; ``None`` if there is no evidence of an exchange."""
    gains = np.cumsum((errors - others)[::-1])[::-1]
    first_index = int(np.argmax(gains))
    if not FEWEST_ROWS <= len(errors) - first_index <= len(errors) - FEWEST_ROWS:
        return None
    error, exchanged_error = float(errors[first_index:].mean()), float(others[first_index:].mean())
    return (
        first_index
        if error > WORSE * exchanged_error and exchanged_error < ALIKE * usual_error
        else None
    )


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
