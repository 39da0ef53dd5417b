"""Defects of a log for learning: actions that never move or are out of range, constant rewards."""

from collections.abc import Iterator

import numpy as np

from neorl_core import Channel, DataStatistics, Spec

STILL = 1e-6
"""A channel that moves by no more than this part of its range stands still: rounding, say."""

FAR = 3.0
"""A mean reward more standard deviations than this from zero delays value learning."""


def still_actions(statistics: DataStatistics, spec: Spec) -> list[str]:
    """The actions that never move in what is trained on, each in words.

    Args:
        statistics: Statistics of the rows that are trained on.
        spec: Channels of the log.

    Returns:
        One sentence for each, with its tag and value; none where all of them move.
    """
    return [
        f"{channel.name} never moves: it is {least:g}{_unit(channel)} in every row that is trained "
        "on, so what another value does is a guess, of every learner and critic; leave it "
        "out of the actions, or record it moving"
        for channel, least, most in _extremes(statistics, spec)
        if most - least <= STILL * (channel.high - channel.low)
    ]


def hindrances(statistics: DataStatistics, spec: Spec) -> list[str]:
    """Defects of the training data that keep learners from learning, each in words.

    Args:
        statistics: Statistics of the training rows; the penalties are subtracted from their reward.
        spec: Channels of the log.

    Returns:
        One sentence for every action that never moves, for every action logged beyond its range
        (learners see it clipped), and for a constant reward. If episodes end early, a reward that
        varies little compared with its mean is reported too; in other logs, learners subtract the
        mean.
    """
    sentences = still_actions(statistics, spec)
    for channel, least, most in _extremes(statistics, spec):
        slack = STILL * (channel.high - channel.low)
        if least < channel.low - slack or most > channel.high + slack:
            sentences.append(
                f"{channel.name} was logged from {least:g} to {most:g}{_unit(channel)}, beyond its "
                f"range {channel.low:g} to {channel.high:g}, to which learners see it clipped; "
                "correct the range, or mask those rows"
            )
    least, most = float(statistics.reward.min), float(statistics.reward.max)
    if most - least <= STILL * max(abs(least), abs(most)):
        sentences.append(
            f"the reward less the penalties is {least:g} in every row that is trained on, so no "
            "policy is better than another and values teach nothing; check the reward's expression"
        )
    elif _ends_early(statistics) and abs(mean := float(statistics.reward.mean)) > FAR * (
        spread := float(statistics.reward.std)
    ):
        sentences.append(
            f"the reward less the penalties is {mean:.3g} on average and varies by {spread:.2g} "
            f"only, so values stand {abs(mean) / spread:.0f} deviations a step from zero and short "
            "trainings end far from the best policy; take a constant off the reward's expression, "
            "and charge what ends an episode early for the steps that it cuts off"
        )
    return sentences


def _ends_early(statistics: DataStatistics) -> bool:
    """Whether the plant ended an episode in a row that is trained on, or that is not known."""
    return statistics.terminated is None or float(statistics.terminated.max) > 0


def _extremes(statistics: DataStatistics, spec: Spec) -> Iterator[tuple[Channel, float, float]]:
    """Every action with its least and its largest value."""
    low, high = (np.asarray(x, np.float64) for x in (statistics.action.min, statistics.action.max))
    return zip(spec.action, low, high, strict=True)


def _unit(channel: Channel) -> str:
    return "" if channel.unit in ("", "1") else f" {channel.unit}"
