"""Detects two measurements that were exchanged within a log, such as by mixed-up cables or tags."""

import itertools
from collections.abc import Collection
from typing import Any

import numpy as np

from neorl_envs.datasets._dataset import Dataset
from neorl_envs.inspection._sample import Sample

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
