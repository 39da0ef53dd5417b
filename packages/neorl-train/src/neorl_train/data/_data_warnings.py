"""Defects of a log: actions that never move, constant rewards, limits that cannot be kept."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neorl_agents import Learner
from neorl_core import Channel, CostChannel, DataStatistics, Spec
from neorl_core.costs import limit_kind
from neorl_envs import Dataset
from neorl_envs.inspection import signal_warnings

# The numbers were set by hand; the loops of test_open_loop.py are on the right side of them. On the
# logs of four plants (tools/studies/tables/choice/log_thresholds.py) none is reported, nor with
# N_PARTS, ROWS_PER_COEFFICIENT, MAX_FRACTION or MAX_STEPS halved or doubled.
N_PARTS = 4
"""Parts of the log that must agree; the parts of a stable plant with a slow mode rarely do."""
MAX_ROWS = 100_000
"""Largest number of rows that are used; it only bounds the time."""
ROWS_PER_COEFFICIENT = 10
"""Smallest number of rows of a part for every coefficient of one output."""
MAX_FRACTION, MAX_STEPS = 0.25, 500
"""A doubling time above this fraction of an episode, or above these steps, is not reported."""


def doubling_steps(dataset: Dataset) -> float | None:
    """The number of steps in which a deviation doubles while the actions are constant.

    A linear model of one step, ``x_next = A x + B u + c``, is fitted by least squares to each of
    four parts of the log. If every ``A`` has an eigenvalue above one, the slowest of the four
    growths is returned. Feedback in the log does not hide such a mode as long as the actions also
    moved for other reasons; if they did not, ``A`` is not determined, and the result is ``None``.

    Returns:
        The steps; ``None`` if the log does not show such a mode, or only one so slow that it
        hardly matters within an episode.
    """
    columns: Any = dataset.transitions
    rows = np.flatnonzero(np.asarray(columns.mask))
    rows = rows[:: max(1, -(-len(rows) // MAX_ROWS))]
    obs, action, next_obs = (
        np.asarray(column[rows], np.float64)
        for column in (columns.obs, columns.action, columns.next_obs)
    )
    finite = np.logical_and.reduce(np.isfinite(np.hstack([obs, action, next_obs])), axis=1)
    obs, action, next_obs = obs[finite], action[finite], next_obs[finite]
    n_coefficients = dataset.spec.n_obs + dataset.spec.n_action + 1
    if len(obs) < N_PARTS * ROWS_PER_COEFFICIENT * n_coefficients:
        return None
    parts = zip(*(np.array_split(x, N_PARTS) for x in (obs, action, next_obs)), strict=True)
    radius = min(_spectral_radius(*part) for part in parts)
    if radius <= 1:
        return None
    steps = math.log(2) / math.log(radius)
    limit = min(MAX_STEPS, MAX_FRACTION * float(dataset.episode_lengths.mean()))
    return steps if steps <= limit else None


def _spectral_radius(obs: np.ndarray, action: np.ndarray, next_obs: np.ndarray) -> float:
    """The largest absolute eigenvalue of ``A``, fitted to columns of unit standard deviation."""
    inputs = np.concatenate([obs, action], axis=1)
    spread = inputs.std(axis=0)
    moving = spread > 1e-9 * np.abs(inputs).max(axis=0)
    moving_obs = moving[: obs.shape[1]]
    if not moving_obs.any():
        return 0.0
    mean, spread = inputs.mean(axis=0), np.where(moving, spread, 1.0)
    design = ((inputs - mean) / spread)[:, moving]
    n_obs = len(moving_obs)
    target = ((next_obs - mean[:n_obs]) / spread[:n_obs])[:, moving_obs]
    design = np.concatenate([design, np.ones((len(design), 1))], axis=1)
    weights = np.linalg.lstsq(design, target, rcond=None)[0]
    return float(np.abs(np.linalg.eigvals(weights[: moving_obs.sum()].T)).max())


def constant_fallback_warnings(dataset: Dataset) -> list[str]:
    """Warns of a fallback with constant actions, if the log shows that the plant needs feedback."""
    steps = doubling_steps(dataset)
    if steps is None:
        return []
    return [
        "according to a linear model of the log, the plant is unstable while its actions are "
        f"constant: a deviation doubles in about {steps:.0f} steps ({steps * dataset.spec.dt:.3g} "
        "s). The fallback of this run holds constant actions, so the plant would leave its "
        "operating point whenever the policy gives no valid action; use a controller as the "
        "fallback, for example with "
        "`--classical.controllers pid --fallback.kind classical --fallback.controller pid`"
    ]


STILL = 1e-6
"""A channel that moves by at most this fraction of its range counts as constant (rounding)."""

MAX_MEAN_TO_SPREAD = 3.0
"""A mean reward more standard deviations than this from zero delays value learning."""


def data_warnings(statistics: DataStatistics, spec: Spec) -> list[str]:
    """Describes defects of the training data that keep learners from learning.

    Returns:
        One sentence for every action that never moves, for every action logged beyond its range
        (learners see it clipped), for a constant reward, and for all observations that never
        change. If episodes end early, a reward that varies little compared with its mean is
        reported too; in other logs, learners subtract the mean.
    """
    sentences = []
    extremes = (np.asarray(x, np.float64) for x in (statistics.action.min, statistics.action.max))
    for channel, low, high in zip(spec.action, *extremes, strict=True):
        slack = STILL * (channel.high - channel.low)
        if high - low <= slack:
            sentences.append(
                f"{channel.name} never moves: it is {low:g}{_unit(channel)} in every row that is "
                "trained on, so no learner and no critic can know the effect of another value; "
                "leave it out of the actions, or record data in which it moves"
            )
        if low < channel.low - slack or high > channel.high + slack:
            sentences.append(
                f"{channel.name} was logged from {low:g} to {high:g}{_unit(channel)}, beyond its "
                f"range {channel.low:g} to {channel.high:g}, and learners clip it to that range; "
                "correct the range, or mask those rows"
            )
    low, high = float(statistics.reward.min), float(statistics.reward.max)
    if high - low <= STILL * max(abs(low), abs(high)):
        sentences.append(
            f"the reward less the penalties is {_plain(low)} in every row that is trained on, so "
            "all policies are equal and there is nothing to learn; check the reward's expression"
        )
    elif _ends_early(statistics) and abs(
        mean := float(statistics.reward.mean)
    ) > MAX_MEAN_TO_SPREAD * (spread := float(statistics.reward.std)):
        sentences.append(
            f"the reward less the penalties is {mean:.3g} on average and its standard deviation is "
            f"only {spread:.2g}, so its mean is {abs(mean) / spread:.0f} standard deviations from "
            "zero and short trainings end far from the best policy; subtract a constant in the "
            "reward's expression, and penalise an early end of an episode for the steps that are "
            "lost"
        )
    return sentences + _still_observations(statistics, spec)


def _still_observations(statistics: DataStatistics, spec: Spec) -> list[str]:
    """One sentence for all observations that never change; none if all of them do."""
    low, high = (np.asarray(x, np.float64) for x in (statistics.obs.min, statistics.obs.max))
    still = [
        channel.name
        for channel, low, high in zip(spec.obs, low, high, strict=True)
        if high - low <= STILL * (channel.high - channel.low)
    ]
    if not still:
        return []
    if len(still) == len(spec.obs):
        return [
            "no observation ever changes in the rows that are trained on, so a policy can only "
            "learn one constant action; check the tags and their period, or use a log in which the "
            "plant moves"
        ]
    return [
        f"{', '.join(still)} never {'changes' if len(still) == 1 else 'change'} in the rows that "
        "are trained on, so no policy can learn how to act at another value; check the tag, leave "
        "the channel out, or record data in which it changes"
    ]


MOST_ENDS = 0.9
"""Share of the ends of episodes that must lie beyond all states: noise may hide a few of them."""


def clock_warnings(
    dataset: Dataset, statistics: DataStatistics, learners: Mapping[str, Learner]
) -> list[str]:
    """Warns of observations that count the episode, if a learner has cost critics.

    Critics bootstrap from the last observation of a truncated episode. They learn its value from
    the rows that have it as their state, and where a channel is a clock there is none.

    Args:
        dataset: Complete log.
        statistics: Statistics of the training data, with the range of every channel of ``obs``.
        learners: The learners that are trained, by name.

    Returns:
        One sentence that names the channels whose last values lie almost always above all that
        states have, or almost always below; none if there is no such channel, or only one end,
        which a drift may put there.
    """
    names = [name for name, of in learners.items() if "cost_critics" in getattr(of, "rates", ())]
    rows: Any = dataset.transitions
    ended = np.asarray(rows.truncated) & ~np.asarray(rows.terminated) & np.asarray(rows.mask)
    if not names or ended.sum() < 2:
        return []
    last, states = np.asarray(rows.next_obs[ended]), statistics.obs
    above, below = last > np.asarray(states.max), last < np.asarray(states.min)
    share = np.maximum(above.mean(axis=0), below.mean(axis=0))
    clocks = [dataset.spec.obs[i].name for i in np.flatnonzero(share >= MOST_ENDS)]
    if not clocks:
        return []
    return [
        f"episodes end at values of {', '.join(clocks)} beyond those of all other rows, as a count "
        f"of steps does, so the cost critics of {', '.join(names)} learn what follows an end from "
        "nothing and may predict costs far above all that occur; leave the channel out of the "
        "observations, or declare the ends as terminated"
    ]


def log_warnings(dataset: Dataset, signals: Sequence[str] | None = None) -> list[str]:
    """Describes defects of a log because of which no answer may be based on it.

    Args:
        dataset: Complete log.
        signals: Sentences of :func:`neorl_envs.inspection.signal_warnings` on it, if they are known
            already; otherwise the log is inspected here.

    Returns:
        One sentence for each signal that appears to be mislabelled, and for a constant reward in a
        log without a trip, for which all policies are equally good; none if there is no defect.
    """
    columns: Any = dataset.transitions
    known = np.asarray(columns.reward)[np.asarray(columns.mask)]
    warnings = list(signal_warnings(dataset) if signals is None else signals)
    if known.size and known.min() == known.max() and not np.asarray(columns.terminated).any():
        warnings.insert(
            0,
            f"the reward is {_plain(float(known[0]))} in every row, so all policies are equal; "
            "check reward.expression in plant.toml",
        )
    return warnings


def _plain(value: float) -> str:
    """A number without the sign of a negative zero."""
    return f"{value + 0.0:g}"


def zero_limits(dataset: Dataset, spec: Spec) -> list[str]:
    """Limits of zero that the log itself exceeds, so that hardly any policy can keep them.

    One sentence for each, with a limit to declare instead.
    """
    sentences = []
    columns: Any = dataset.transitions
    for j, channel in enumerate(spec.cost):
        if channel.limit != 0:
            continue
        known = np.where(columns.mask, columns.cost[:, j], 0.0).astype(np.float64)
        worst = np.maximum.reduceat(known, dataset.episode_starts)
        over = int((worst > 0).sum())
        if over:
            kind = limit_kind(channel)
            total = np.add.reduceat(known, dataset.episode_starts)
            mean = float(np.mean(kind.of_episode(total=total, worst=worst)))
            sentences.append(
                f"the cost {channel.name} has a limit of 0, which the mean over episodes keeps "
                f"only if no episode exceeds it; {over} of the {len(worst)} logged ones "
                f"{'does' if over == 1 else 'do'}, so hardly any policy can be shown to keep it; "
                f"declare what the plant tolerates: the log's own mean {kind.quantity} is "
                f"{mean:.3g}{_unit(channel)} (--limits.cost {channel.name} {_rounded_up(mean)})"
            )
    return sentences


def _rounded_up(value: float) -> str:
    """The number rounded up to two digits."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.ceil(value / step - 1e-5) * step:.2g}"


def _ends_early(statistics: DataStatistics) -> bool:
    """Whether the plant ended an episode in a training row, or in a row where this is unknown."""
    return statistics.terminated is None or float(statistics.terminated.max) > 0


def _unit(channel: Channel | CostChannel) -> str:
    return "" if channel.unit in ("", "1") else f" {channel.unit}"
