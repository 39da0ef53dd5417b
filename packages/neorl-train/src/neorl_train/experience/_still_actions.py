"""Manipulated variables that a log shows at one value alone."""

import numpy as np

from neorl_core import DataStatistics, Spec

STILL = 1e-6
"""A channel that moves by no more than this part of its range stands still: rounding, say."""


def still_actions(statistics: DataStatistics, spec: Spec) -> list[str]:
    """The actions that never move in what is trained on, each in words.

    Args:
        statistics: Of the rows that are trained on.
        spec: Channels of the log.

    Returns:
        One sentence for each, with its tag and value; none where all of them move.
    """
    low, high = (np.asarray(x, np.float64) for x in (statistics.action.min, statistics.action.max))
    sentences = []
    for channel, least, most in zip(spec.action, low, high, strict=True):
        if most - least <= STILL * (channel.high - channel.low):
            unit = "" if channel.unit in ("", "1") else f" {channel.unit}"
            sentences.append(
                f"{channel.name} never moves: it is {least:g}{unit} in every row that is trained "
                "on, so what another value does is a guess, of every learner and critic; leave it "
                "out of the actions, or record it moving"
            )
    return sentences
