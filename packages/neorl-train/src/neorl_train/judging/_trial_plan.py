"""The plan of a trial: how many episodes it takes, and after how many broken ones it stops."""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import betainc

from neorl_train.judging._wording import number, quantity

POWER_FACTOR = 2.8
"""Gain in standard errors that is detected at 5 % with a probability of 80 %: 1.96 + 0.84."""
STOP_LEVEL = 0.05
"""Probability of stopping the trial of a policy that breaks limits as rarely as the incumbent."""
FIRST_EPISODES = 10
"""Number of first episodes that a longer trial is also stopped by, so that harm is seen early."""


class BrokenEpisodes(NamedTuple):
    """How many logged episodes broke a limit.

    Attributes:
        broken: Number of episodes over the limit of at least one cost.
        episodes: Number of episodes; 0 if they were not counted.
    """

    broken: int
    episodes: int


NOT_COUNTED = BrokenEpisodes(0, 0)


def trial_plan(
    incumbent: str,
    gain: float,
    scale: float,
    unit: str,
    logged: BrokenEpisodes | None,
) -> str:
    """How to run a trial, when to stop it, and how many episodes show the gain.

    Args:
        incumbent: Name of the controller that runs today.
        gain: Gain in return that the trial should show.
        scale: Spread of returns between episodes, in the same unit.
        unit: Unit of the return.
        logged: Logged episodes of the incumbent; ``None`` if there is no cost with a limit.
    """
    gain = max(gain, 1e-300)
    episodes = math.ceil(2 * (POWER_FACTOR * scale / gain) ** 2)
    stop = "" if logged is None else f" {_stopping_rule(incumbent, episodes, logged)}"
    return (
        "Run it in shadow first, then with bounded authority, alternating with "
        f"{incumbent}.{stop} About {episodes} episodes of each show a gain of "
        f"{quantity(gain, unit)} four times in five."
    )


def _stopping_rule(incumbent: str, episodes: int, logged: BrokenEpisodes) -> str:
    if not logged.broken:
        why = f", because none of {logged.episodes} logged episodes does" if logged.episodes else ""
        return f"Stop at its first episode that breaks a limit{why}."
    share = logged.broken / logged.episodes
    today = f"{number(100 * share)} %"
    counts = stopping_counts(share, episodes)
    if not counts:
        return (
            f"Agree beforehand on limits that {incumbent} keeps, and stop when one is broken, "
            f"because {today} of the logged episodes break a limit and {episodes} episodes cannot "
            "show that the policy breaks one more often."
        )
    looks = " or ".join(
        f"{count} of its {'first ' if first < episodes else ''}{first}" for count, first in counts
    )
    return (
        f"Stop as soon as {looks} episodes break a limit; if it breaks one in {today} of its "
        "episodes, as in the log, the probability of stopping is at most "
        f"{number(100 * STOP_LEVEL)} %."
    )


def stopping_counts(share: float, episodes: int) -> tuple[tuple[int, int], ...]:
    """After how many broken episodes a trial stops.

    The count only grows, so it may be looked at after every episode: stopping as soon as ``k`` of
    ``n`` episodes are broken has the probability that a binomial count of ``n`` episodes is at
    least ``k``. Where there are two counts, each has half of :data:`STOP_LEVEL`.

    Args:
        share: Probability that an episode of the incumbent breaks a limit, taken as known.
        episodes: Length of the trial.

    Returns:
        Pairs of the count and the number of episodes that it applies to: the first ones of a long
        trial, then all. A pair is left out if no count is that unlikely.
    """
    looks = (FIRST_EPISODES, episodes) if episodes >= 2 * FIRST_EPISODES else (episodes,)
    pairs = []
    for n in looks:
        counts = np.arange(1, n + 1)
        at_least = betainc(counts, n - counts + 1, share)
        unlikely = np.flatnonzero(at_least <= STOP_LEVEL / len(looks))
        pairs += [(int(counts[i]), n) for i in unlikely[:1]]
    return tuple(pairs)
