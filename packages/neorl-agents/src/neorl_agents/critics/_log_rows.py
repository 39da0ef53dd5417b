"""What critics are fitted on: columns and events of a log, evidence for limits, and the loop."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_agents.learning import (
    Learner,
    LearnerState,
    Log,
    for_run,
    log_tables,
    rows_for,
    train_chunk,
)
from neorl_agents.learning import Training as LoopState
from neorl_agents.sampling._histories import finite_column, row_flags
from neorl_core import (
    CostChannel,
    DataStatistics,
    FieldStatistics,
    InputError,
    Spec,
    Transition,
    as_arrays,
)
from neorl_core.costs import limit_kind
from neorl_core.statistics import DEFAULT_LEVEL

# The columns of a log that critics are fitted on, and which of its rows are consecutive.


class Columns(NamedTuple):
    """Unmasked rows, in order of time, float64 in physical units.

    A piece is a stretch of rows without a gap: it ends with its episode and before a masked row.

    Attributes:
        obs: Shape ``(row, obs)``.
        action: Shape ``(row, act)``.
        next_obs: Shape ``(row, obs)``.
        cost: Shape ``(row, cost)``; without a column if the log has no cost.
        terminated: Whether the plant ended the episode after a row, shape ``(row,)``.
        last: Whether a row is the last of its piece, shape ``(row,)``.
        episode: Index of the episode of every row, shape ``(row,)``.
        age: Steps of its episode before a row, masked ones included, shape ``(row,)``.
    """

    obs: np.ndarray
    action: np.ndarray
    next_obs: np.ndarray
    cost: np.ndarray
    terminated: np.ndarray
    last: np.ndarray
    episode: np.ndarray
    age: np.ndarray

    @property
    def episodes(self) -> np.ndarray:
        """Indices of the episodes that have a row, ascending."""
        return np.unique(self.episode)

    def take(self, rows: np.ndarray) -> "Columns":
        """The rows where the flag is true."""
        return Columns(*(column[rows] for column in self))


def checked_columns(log: Transition, spec: Spec, *, cost: bool) -> Columns:
    """The columns of a flat log, checked.

    Raises an ``InputError`` if a column is missing, has another shape than ``spec`` requires, holds
    a number that is not finite in an unmasked row, or no row is left.
    """
    needed = ("next_obs", "terminated", "truncated", *["cost"] * cost)
    terminated, ends, keep = row_flags(log, needed, "a critic needs it")
    total = len(ends)
    first = np.append(True, ends[:-1])
    start = np.maximum.accumulate(np.where(first, np.arange(total), 0))
    widths = {"obs": spec.n_obs, "action": spec.n_action, "next_obs": spec.n_obs}
    widths |= {"cost": spec.n_cost} if cost else {}
    columns = {name: finite_column(log, name, (total, n), keep) for name, n in widths.items()}
    return Columns(
        obs=columns["obs"],
        action=columns["action"],
        next_obs=columns["next_obs"],
        cost=columns.get("cost", np.zeros((int(keep.sum()), 0))),
        terminated=terminated[keep],
        last=(ends | ~np.append(keep[1:], False))[keep],
        episode=(np.cumsum(first) - 1)[keep],
        age=(np.arange(total) - start)[keep],
    )


def split_columns(
    columns: Columns, share: float, key: PRNGKeyArray, *, what: str
) -> tuple[Columns, Columns]:
    """Splits whole episodes into a training part and a held-out part.

    Each part gets at least one episode. Raises an ``InputError`` if there are fewer than two
    episodes.
    """
    episodes = columns.episodes
    if len(episodes) < 2:
        raise InputError(
            f"{what} holds out whole episodes, because the steps of one are not independent, but "
            f"the log has {len(episodes)}; record more episodes, or fit without {what}, which "
            "gives no guarantee"
        )
    count = min(max(round(share * len(episodes)), 1), len(episodes) - 1)
    order = np.asarray(jax.random.permutation(key, len(episodes)))
    is_held_out = np.isin(columns.episode, episodes[order[:count]])
    return columns.take(~is_held_out), columns.take(is_held_out)


def only_episodes(log: Transition, columns: Columns, episodes: np.ndarray) -> Transition:
    """The log with every row masked that does not belong to the given episodes."""
    mask = np.ones(len(np.asarray(log.obs)), bool) if log.mask is None else np.array(log.mask, bool)
    mask[mask] = np.isin(columns.episode, episodes)
    return log._replace(mask=mask)  # pyright: ignore[reportArgumentType]


def column_statistics(columns: Columns) -> DataStatistics:
    """Statistics of the rows, from which learners are prepared; the rewards are taken as zero."""

    def statistics_of(values: np.ndarray) -> FieldStatistics:
        x = values.astype(np.float64)
        moments = (len(x), x.mean(0), x.std(0), x.min(0), x.max(0))
        return FieldStatistics(*(jnp.asarray(number, jnp.float32) for number in moments))

    lengths = np.unique(columns.episode, return_counts=True)[1]
    none = np.zeros(len(columns.last))
    other_columns = (none, columns.cost, np.zeros(len(lengths)), lengths, columns.terminated)
    return DataStatistics(*map(statistics_of, (columns.obs, columns.action, *other_columns)))


# Events in the steps after every row of a log, as far as the log contains them.


def steps_left(columns: Columns) -> np.ndarray:
    """Number of rows from each row to the end of its piece, itself included, shape ``(row,)``."""
    rows = np.arange(len(columns.last))
    ends = np.where(columns.last, rows, len(rows))
    next_end = np.minimum.accumulate(ends[::-1])[::-1]
    return np.minimum(next_end, len(rows) - 1) - rows + 1


def window_sums(columns: Columns, values: np.ndarray, horizon: int, discount: float) -> np.ndarray:
    """``sum_{i < horizon} discount^i values_{t+i}`` within the piece of every row.

    Values and sums have the shape ``(row, channel)``; steps beyond the end of a piece add zero.
    """
    remaining, total = steps_left(columns), np.zeros(values.shape)
    padded = np.concatenate([values, np.zeros((horizon, values.shape[1]))])
    for i in range(horizon):
        inside = (remaining > i)[:, None]
        total += discount**i * np.where(inside, padded[i : i + len(values)], 0)
    return total


def fully_observed(columns: Columns, horizon: int, episode_length: int) -> np.ndarray:
    """Whether the log contains everything within the horizon of a row, shape ``(row,)``.

    A row is kept if its window ends within its piece, or the plant ended the episode before that.
    Rows whose window passes the longest episode are dropped, even if the plant ended it earlier;
    otherwise rows close to the time limit would be kept only if an event ended the episode.
    """
    remaining = steps_left(columns)
    end = np.arange(len(remaining)) + remaining - 1
    in_time = columns.age + horizon <= episode_length
    return in_time & ((remaining >= horizon) | columns.terminated[end])


# The training of one critic on the rows of a log, by the common compiled loop.


CHUNK = 500
"""Number of updates in one call of the compiled program, which samples all their batches."""


def trained_in_memory(
    learner: Learner,
    spec: Spec,
    rows: Transition,
    statistics: DataStatistics,
    updates: int,
    key: PRNGKeyArray,
) -> tuple[LearnerState, dict[str, float]]:
    """Trains one seed from beginning to end.

    Returns the final state and the mean metrics of the last chunk. ``rows`` is a log in order, host
    arrays, of which masked rows are ignored; ``statistics`` are those of the others. Raises an
    ``InputError`` if the loss of the last chunk is not finite.
    """
    initial, chunks = jax.random.split(key)
    learner = for_run(learner, updates)
    state = learner.init(spec, statistics, initial)
    tables = jax.device_put(log_tables(learner, spec, rows_for(learner, rows, ())))
    # A chunk is given the buffers of its training, so no two leaves may share one.
    training = LoopState(jax.tree.map(jnp.copy, state), ())
    arrays, metrics = as_arrays(learner), {}
    for first in range(0, updates, CHUNK):
        length = min(CHUNK, updates - first)
        training, metrics = train_chunk(
            arrays, Log(), training, tables, np.int32(first), chunks, n_updates=length
        )
    losses = {name: float(value) for name, value in metrics.items()}
    require_finite_loss(learner, losses)
    return training.learner, losses


def require_finite_loss(learner: Any, metrics: dict[str, float]) -> None:
    """Refuses a training whose last loss is not finite."""
    if not np.isfinite(metrics["loss"]):
        raise InputError(
            f"training ended with a loss of {metrics['loss']}; reduce learning_rate, which is "
            f"{learner.learning_rate:g}"
        )


def require_fit(function: str, updates: int, calibration_share: float) -> None:
    """Refuses a training length or a calibration share that is out of range."""
    if isinstance(updates, bool) or not isinstance(updates, int) or updates < 1:
        raise ValueError(f"{function}: updates must be an integer of at least 1, got {updates!r}")
    if not 0 <= calibration_share < 1:
        raise ValueError(
            f"{function}: calibration_share must be in [0, 1), got {calibration_share!r}"
        )


# Evidence in a log for every limit, and the claims that it supports.


class NothingToLearnError(InputError):
    """No cost varies, so no safety critic can be fitted; the message says what can be claimed."""


class LimitFacts(NamedTuple):
    """Evidence in a log for one limit.

    Attributes:
        name: Name of the cost channel.
        steps: Fraction of the steps that count against the limit.
        episodes: Number of episodes with such a step.
        learnable: Whether something can be learned: some steps count and some do not; a cost must
            not be constant.
        claim: Statement about the limit that this log supports, in words.
    """

    name: str
    steps: float
    episodes: int
    learnable: bool
    claim: str


def counted_steps(columns: Columns, spec: Spec) -> np.ndarray:
    """Whether each step counts against each limit, shape ``(row, cost)``.

    For a limit per step, a step counts if its cost is above the limit. For a limit per episode, it
    counts if its cost is above zero, since every cost adds to the sum
    (``neorl_core.costs.LimitKind.row_threshold``).
    """
    limits = [limit_kind(channel).row_threshold(channel.limit) for channel in spec.cost]
    return columns.cost > np.asarray(limits)[None]


def limit_facts(columns: Columns, spec: Spec, quantity: str) -> tuple[LimitFacts, ...]:
    """The facts of every limit.

    Raises a ``NothingToLearnError`` if there is no cost, or nothing can be learned about any limit.
    """
    if spec.n_cost == 0:
        raise NothingToLearnError(
            "a safety critic learns the risk of a cost limit, but the specification has no cost "
            "channel; give the log a cost column with a limit, or fit an ensemble, which needs "
            "none"
        )
    counted = counted_steps(columns, spec)
    facts = tuple(
        _facts(columns, counted[:, k], columns.cost[:, k], channel, quantity)
        for k, channel in enumerate(spec.cost)
    )
    if not any(one.learnable for one in facts):
        claims = "; ".join(one.claim for one in facts)
        raise NothingToLearnError(f"nothing can be learned about any limit from this log: {claims}")
    return facts


def _facts(
    columns: Columns, counted: np.ndarray, cost: np.ndarray, channel: CostChannel, quantity: str
) -> LimitFacts:
    name, total = channel.name, len(columns.episodes)
    episodes = len(np.unique(columns.episode[counted]))
    varies = bool(0 < counted.sum() < len(counted))
    if quantity == "cost":
        varies = bool(np.ptp(cost) > 0)
    low, high = (100 * end for end in _exact_limits(episodes, total))
    share = f"{episodes} of {total} episodes have a step that counts against {name}"
    bounds = (
        f"among episodes like these, {low:.3g} to {high:.3g} % have one (confidence interval at "
        f"{100 * DEFAULT_LEVEL:g} %)"
    )
    if varies:
        claim = f"{share}; {bounds}"
    elif quantity == "cost":
        claim = f"the cost {name} is {cost[0]:g} in every step, so no action is known to change it"
    elif counted.any():
        claim = f"every step counts against {name}, so the log does not show how to keep the limit"
    else:
        claim = (
            f"{share}; {bounds}. The log does not show what leads to a violation, so a low "
            "predicted risk says nothing about this limit"
        )
    return LimitFacts(name, float(counted.mean()), episodes, varies, claim)


def _exact_limits(count: int, total: int) -> tuple[float, float]:
    """Clopper and Pearson's limits of a probability, at the level of every interval."""
    from scipy.special import betaincinv  # Imported here: slow, and only needed for fits.

    tail = (1 - DEFAULT_LEVEL) / 2
    low = float(betaincinv(count, total - count + 1, tail)) if count > 0 else 0.0
    high = float(betaincinv(count + 1, total - count, 1 - tail)) if count < total else 1.0
    return low, high
