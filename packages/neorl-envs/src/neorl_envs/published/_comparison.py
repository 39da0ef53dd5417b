"""Compares a log with the published one, by hash or, where bits may differ, by statistics."""

from typing import Any, Literal, NamedTuple

import numpy as np

from neorl_envs.datasets._dataset import Dataset
from neorl_envs.published._environment import numerical_environment
from neorl_envs.published._records import SPREAD, PublishedLog, published_logs
from neorl_envs.published._settings import settings_digest

ROWS, MEANS = 0.02, 0.1
"""Largest allowed differences in another environment: relative length, and means in standard
deviations."""

Verdict = Literal["equal", "close", "differs", "other settings", "unpublished"]


class Comparison(NamedTuple):
    """Result of comparing a log with the published one.

    Attributes:
        verdict: ``"equal"``: identical bits. ``"close"``: no hash is known for this numerical
            environment, but the statistics agree. ``"differs"``: neither of these. ``"other
            settings"``: plant, controllers or operators differ from the record.
            ``"unpublished"``: there is no record.
        sentence: The verdict as a sentence.
    """

    verdict: Verdict
    sentence: str


def compare_log(
    env: Any,
    dataset: Dataset,
    quality: str,
    *,
    seed: int,
    n_steps: int,
    spread: float = SPREAD,
    environment: str | None = None,
) -> Comparison:
    """Compares a collected log with the published one of the same plant, quality, seed and size.

    Args:
        env: The plant.
        dataset: Dataset from ``collect_log`` with the key of ``seed``.
        quality: Quality of the log.
        seed: Seed of the log.
        n_steps: Requested number of rows.
        spread: Relative spread of the sampled parameters.
        environment: Numerical environment; that of this process by default.

    Returns:
        The verdict, by hash if one is known for this environment, otherwise by statistics.
    """
    log_key = (env.name, quality, seed, n_steps)
    record = next((x for x in published_logs() if x[:4] == log_key and spread == SPREAD), None)
    if record is None:
        return Comparison("unpublished", "there is no published log of this quality, seed and size")
    if settings_digest(env, quality, seed=seed, n_steps=n_steps, spread=spread) != record.settings:
        return Comparison(
            "other settings",
            "the published log was recorded with other settings of the plant, controllers or "
            "operators",
        )
    here = numerical_environment() if environment is None else environment
    if here in record.content:
        if record.content[here] == dataset.content_hash:
            return Comparison("equal", "equal to the published log")
        return Comparison("differs", f"NOT the published log, which is {record.content[here]}")
    return _compare_statistics(record, dataset, here)


def _compare_statistics(record: PublishedLog, dataset: Dataset, here: str) -> Comparison:
    elsewhere = f"no hash is published for {here}"
    differences = _differences(record, dataset)
    if differences:
        return Comparison("differs", f"{elsewhere}, and {differences[0]}")
    return Comparison("close", f"{elsewhere}; rows, returns and means agree with those elsewhere")


def _differences(record: PublishedLog, dataset: Dataset) -> list[str]:
    rows, returns = dataset.transitions, dataset.episode_returns()
    differences = []
    if abs(dataset.n_rows - record.rows) > ROWS * record.rows:
        differences.append(f"there are {dataset.n_rows} rows; the published log has {record.rows}")
    deviation = abs(returns.mean() - record.returns[0])
    if deviation > MEANS * record.returns[1] + 1e-4 * abs(record.returns[0]):
        differences.append(
            f"the mean return is {returns.mean():.6g}; published: {record.returns[0]:.6g}"
        )
    for name, column, means, channels in (
        ("observation", rows.obs, record.obs, dataset.spec.obs),
        ("action", rows.action, record.action, dataset.spec.action),
    ):
        values = np.asarray(column, np.float64)
        slack = MEANS * values.std(axis=0) + 1e-4 * np.abs(means)
        for i in np.flatnonzero(np.abs(values.mean(axis=0) - means) > slack):
            mean = values[:, i].mean()
            differences.append(
                f"the mean of {name} {channels[i].name} is {mean:.6g}; published: {means[i]:.6g}"
            )
    return differences
