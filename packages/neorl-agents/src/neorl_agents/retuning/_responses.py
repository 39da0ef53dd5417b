"""Whether a plant model knows what an action does: its step responses, and moves that it never saw.

A model that replays the residuals of a log repeats the log under the logged actions, whatever it
takes an action to do. So the effect of an action is examined by itself, in two ways.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from neorl_agents.models import HistoryModel, HistoryModelSettings, LogRows
from neorl_agents.models._history_model import (
    CLIP,
    FOLDS,
    PAST,
    folds,
    histories,
    linear_part_of,
)
from neorl_agents.models._model_check import _of_member
from neorl_agents.retuning._excitation import PAST_STEPS

FACTOR = 2.0
"""Largest ratio of two responses of members, and of a logged response to the predicted one."""
INVERSE = 0.2
"""Largest response of a member against the direction of the others, as a fraction of their peak."""
STEPS = 100
"""Longest step response."""
WINDOWS = 64
"""Places in the log at which the networks are given a step."""
MOVES = 600
"""Largest number of free moves of each action."""
AFTER = (1, 2, 3, 5, 8, 12, 20, 30, 50)
"""Steps after a free move at which the log is compared with the model."""
SURE = 2.0
"""Standard errors of the interval of a logged response."""
SURE_OF_ALL = 3.0
"""Standard errors by which the worst of the responses at :data:`AFTER` must be outside."""
RELEVANT = 0.2
"""Smallest such distance that counts, as a fraction of the largest response."""


class StepResponse(NamedTuple):
    """What a step of one action does to the channel that answers it most, by every member.

    Attributes:
        action: Name of the action.
        channel: Name of the channel.
        size: The step: a standard deviation of the action in the log, in its unit.
        response: Change of the channel in its unit, shape ``(member, time)``: the members of the
            model, its linear part, and linear fits to other parts of the log, with as many past
            steps and with twice as many.
        groups: Sizes of these three groups of members; each member is its own by default.
    """

    action: str
    channel: str
    size: float
    response: Float[np.ndarray, "member time"]
    groups: tuple[int, ...] = ()

    @property
    def middle(self) -> Float[np.ndarray, " time"]:
        """The median of the members."""
        return np.median(self.response, axis=0)

    @property
    def settled(self) -> Float[np.ndarray, " group"]:
        """Mean response of every group where the median has half of its peak or more.

        A mean over fits to parts of a log does not depend on how chance divides it.
        """
        middle = np.abs(self.middle)
        of_member = self.response[:, middle >= middle.max() / 2].mean(axis=1)
        sizes = self.groups or (1,) * len(of_member)
        return np.asarray([one.mean() for one in np.split(of_member, np.cumsum(sizes)[:-1])])

    @property
    def objection(self) -> str:
        """Why the members do not agree; empty if they do."""
        of = f"the members of the model disagree about what {self.action} does to {self.channel}: "
        if not np.isfinite(self.response).all():
            return of + "the response of one of them diverges"
        middle, settled = self.middle, self.settled
        direction = np.sign(middle[np.argmax(np.abs(middle))])
        smallest, largest = sorted((direction * settled).tolist())[:: len(settled) - 1]
        if smallest <= 0 or largest > FACTOR * smallest:
            low, high = sorted((direction * smallest, direction * largest))
            return (
                f"{of}a step by {self.size:.3g} moves it by {low:.3g} in one and by {high:.3g} in "
                f"another, which differ by more than a factor of {FACTOR:g}"
            )
        against = direction * self.response
        if -against.min() > INVERSE * np.abs(middle).max() + max(0.0, -(direction * middle).min()):
            late = int(np.argmin(against.min(axis=0))) + 1
            return (
                f"{of}{late} steps after a step, one of them still answers in the other direction"
            )
        return ""


class MoveResponse(NamedTuple):
    """What followed free moves of an action in episodes that the model was not fitted to.

    A free move is what the measurements and the earlier actions do not explain: a move by hand, of
    a set point, or a test signal.

    Attributes:
        action: Name of the action.
        channel: Name of the channel.
        steps: Steps after the move, shape ``(lag,)``.
        predicted: Change of the channel for each unit of the action, by the networks.
        logged: The same in the log.
        error: One standard error of ``logged - predicted``, over episodes.
        moves: Number of moves.
    """

    action: str
    channel: str
    steps: Int[np.ndarray, " lag"]
    predicted: Float[np.ndarray, " lag"]
    logged: Float[np.ndarray, " lag"]
    error: Float[np.ndarray, " lag"]
    moves: int

    @property
    def _at(self) -> int:
        return int(np.argmax(np.abs(self.predicted) / np.maximum(self.error, 1e-300)))

    @property
    def tells(self) -> bool:
        """Whether the log can contradict the model here."""
        at = self._at
        return bool(abs(self.predicted[at]) > SURE * self.error[at])

    @property
    def share(self) -> tuple[float, float, float]:
        """The logged response as a fraction of the predicted one, with its interval."""
        at = self._at
        reach = SURE * self.error[at] / abs(self.predicted[at])
        share = self.logged[at] / self.predicted[at]
        return float(share), float(share - reach), float(share + reach)

    @property
    def sentence(self) -> str:
        """What was found, in one sentence."""
        share, low, high = self.share
        return (
            f"{self.steps[self._at]} steps after {self.moves} free moves of {self.action} that the "
            f"model was not fitted to, {self.channel} had moved by {share:.2f} [{low:.2f}, "
            f"{high:.2f}] times as much as predicted"
        )

    @property
    def objection(self) -> str:
        """Why the log contradicts the model; empty if it does not."""
        direction, size = np.sign(self.predicted), np.abs(self.predicted)
        logged = direction * self.logged
        beyond = np.maximum(logged - FACTOR * size, size / FACTOR - logged)
        counts = beyond > RELEVANT * max(size.max(), np.abs(self.logged).max())
        sure = np.where(counts, beyond / np.maximum(self.error, 1e-300), 0.0)
        at = int(np.argmax(sure))
        if sure[at] <= SURE_OF_ALL:
            return ""
        return (
            f"{self.steps[at]} steps after {self.moves} free moves of {self.action} that the model "
            f"was not fitted to, {self.channel} had moved by {self.logged[at]:.3g} per unit of it, "
            f"and the model predicts {self.predicted[at]:.3g}: another direction, or more than a "
            f"factor of {FACTOR:g}"
        )


class Responses(NamedTuple):
    """What actions do, according to a model and to a log.

    Attributes:
        steps: One for every action.
        moves: One for every action that moved freely in the episodes that judge.
    """

    steps: tuple[StepResponse, ...] = ()
    moves: tuple[MoveResponse, ...] = ()

    @property
    def objections(self) -> tuple[str, ...]:
        """Why the model does not know what an action does, in sentences."""
        found = (one.objection for one in (*self.steps, *self.moves))
        return tuple(sentence for sentence in found if sentence)

    @property
    def sentence(self) -> str:
        """What was found if nothing objects."""
        told = [one.sentence for one in self.moves if one.tells]
        agreed = (
            "the members of the model agree within a factor of "
            f"{FACTOR:g} about what each action does"
        )
        return "; ".join([agreed, *told])


def responses(
    model: HistoryModel,
    rows: LogRows,
    fitted: Int[np.ndarray, " episode"],
    held_out: Int[np.ndarray, " episode"],
    settings: HistoryModelSettings,
    *,
    setpoints: Sequence[str] = (),
) -> Responses:
    """The step responses of a model, and its answer to moves that it was not fitted to.

    Args:
        model: The model.
        rows: The log.
        fitted: First rows of the episodes that the model was fitted to.
        held_out: First rows of others.
        settings: Settings of the model.
        setpoints: Observations that are set points, whose moves make an action free.

    Returns:
        Both, each for the channel that answers an action most.

    Source: Ljung, System identification (1999), section 16.6, for the test by moves: with the right
    model, errors of predictions are not correlated with what moved the action from outside.
    """
    spec, predicted = model.spec, model.predicted
    spread = np.asarray(model.scales.obs[1], np.float64)[list(predicted)]
    every = _step_responses(model, rows, fitted, settings)
    fits = (len(every) - model.members - 1) // 2
    groups = (model.members + 1, fits, fits)
    steps, strongest = [], []
    for number, channel in enumerate(spec.action):
        peak = np.abs(np.median(every[:, number], axis=0)).max(axis=0) / spread
        chosen = int(np.argmax(np.where(np.isfinite(peak), peak, 0)))
        strongest.append(chosen)
        steps.append(
            StepResponse(
                channel.name,
                spec.obs[predicted[chosen]].name,
                float(model.scales.action[1, number]),
                every[:, number, :, chosen],
                groups,
            )
        )
    return Responses(tuple(steps), _move_responses(model, rows, held_out, strongest, setpoints))


def _step_responses(
    model: HistoryModel,
    rows: LogRows,
    fitted: np.ndarray,
    settings: HistoryModelSettings,
) -> Float[np.ndarray, "member act time predicted"]:
    kept = np.isin(rows.start, fitted)
    length = int(np.bincount(np.unique(rows.start[kept], return_inverse=True)[1]).max())
    steps = min(STEPS, length)
    own = np.flatnonzero(kept)
    index = np.empty(len(rows.start), np.int64)
    index[own] = np.arange(len(own))
    part_rows = LogRows(*(column[own] for column in rows))
    part_rows = part_rows._replace(start=index[part_rows.start].astype(np.int32))
    part, scales = folds(part_rows), model.scales
    linear = []
    for history in (model.history, 2 * model.history):
        for fold in range(min(FOLDS, part.max() + 1)):
            fit = linear_part_of(
                part_rows, scales, model.predicted, history, part != fold, settings
            )
            linear.append(
                [
                    _linear_response(model, fit, history, number, steps)
                    for number in range(model.spec.n_action)
                ]
            )
    return np.concatenate([_network_responses(model, rows, own, steps), np.asarray(linear)])


def _linear_response(
    model: HistoryModel, fit: np.ndarray, history: int, action: int, steps: int
) -> Float[np.ndarray, "time predicted"]:
    """The response of a linear map to a step by one standard deviation, from rest."""
    scales, columns = model.scales, list(model.predicted)
    obs_scale = np.asarray(scales.obs[1], np.float64)
    change_scale = np.asarray(scales.change[1], np.float64)
    obs = np.zeros((history, len(obs_scale)))
    actions = np.zeros((history + 1, model.spec.n_action))
    answer = []
    for _ in range(steps):
        actions = np.concatenate([actions[1:], actions[-1:]])
        actions[-1, action] = 1.0
        past = PAST * (obs[:-1] - obs[-1:])[:, columns] / change_scale
        inputs = np.concatenate([obs[-1] / obs_scale, past.ravel(), actions.ravel()])
        after = obs[-1].copy()
        after[columns] += inputs @ fit[:-1] * change_scale
        obs = np.concatenate([obs[1:], after[None]])
        answer.append(after[columns])
    return np.stack(answer)


def _network_responses(
    model: HistoryModel, rows: LogRows, own: np.ndarray, steps: int
) -> Float[np.ndarray, "member act time predicted"]:
    """The difference that a step makes in every member, mean over places in the log."""
    begin = own[own + steps <= len(rows.start)]
    begin = begin[rows.start[begin + steps - 1] == rows.start[begin]]
    begin = begin[:: max(1, len(begin) // WINDOWS)][:WINDOWS]
    actions = rows.action[begin[:, None] + np.arange(steps)]
    size = np.asarray(model.scales.action[1])
    as_logged = _runs(model, rows, begin, actions)
    answers = []
    for number in range(model.spec.n_action):
        moved = actions.copy()
        moved[..., number] += size[number]
        answers.append((_runs(model, rows, begin, moved) - as_logged).mean(axis=1))
    return np.stack(answers, axis=1)


def _runs(
    model: HistoryModel, rows: LogRows, begin: np.ndarray, actions: np.ndarray
) -> Float[np.ndarray, "member place time predicted"]:
    """Predicted channels from some rows on, under given actions; the linear part as last member."""
    obs_rows, action_rows = histories(rows, begin, model.history)
    logged = rows.next_obs[begin[:, None] + np.arange(actions.shape[1])]
    columns = [jnp.asarray(x) for x in (rows.obs[obs_rows], rows.action[action_rows])]
    numbers = [*range(model.members), -1]
    runs: Any = [
        _of_member(model, jnp.asarray(n), *columns, jnp.asarray(actions), jnp.asarray(logged))
        for n in numbers
    ]
    return np.asarray(jax.device_get(runs), np.float64)[..., list(model.predicted)]


def _move_responses(
    model: HistoryModel,
    rows: LogRows,
    held_out: np.ndarray,
    strongest: Sequence[int],
    setpoints: Sequence[str],
) -> tuple[MoveResponse, ...]:
    indices = np.flatnonzero(np.isin(rows.start, held_out))
    indices = indices[indices > rows.start[indices]]  # whose earlier action is known
    longest = int(np.bincount(np.unique(rows.start[indices], return_inverse=True)[1]).max()) + 1
    after = np.asarray([n for n in AFTER if n <= longest / 2])
    free = _free_part(model, rows, indices, setpoints)
    last = indices + after[-1] - 1
    whole = last < len(rows.start)
    whole[whole] &= rows.start[last[whole]] == rows.start[indices[whole]]
    indices, free = indices[whole], free[whole]
    found = []
    for number, channel in enumerate(model.spec.action):
        own = np.argsort(-np.abs(free[:, number]))[:MOVES]
        if len(own) < 10 or not np.any(free[own, number]):
            continue
        begin, move = indices[own], free[own, number].astype(np.float64)
        actions = rows.action[begin[:, None] + np.arange(after[-1])]
        still = np.broadcast_to(rows.action[begin - 1][:, None], actions.shape)
        runs = [_runs(model, rows, begin, one)[:-1].mean(axis=0) for one in (actions, still)]
        column = model.predicted[strongest[number]]
        predicted, unmoved = (run[:, after - 1, strongest[number]] for run in runs)
        logged = rows.next_obs[begin[:, None] + after - 1, column].astype(np.float64)
        slope, _ = _slope(move, predicted - unmoved, rows.start[begin])
        miss, error = _slope(move, logged - predicted, rows.start[begin])
        found.append(
            MoveResponse(
                channel.name, model.spec.obs[column].name, after, slope, slope + miss, error,
                len(own),
            )
        )  # fmt: skip
    return tuple(found)


def _free_part(
    model: HistoryModel, rows: LogRows, indices: np.ndarray, setpoints: Sequence[str]
) -> Float[np.ndarray, "row act"]:
    """The part of every action that no measurement, disturbance or earlier action explains."""
    obs_rows, action_rows = histories(rows, indices, max(model.history, PAST_STEPS))
    read = [i for i, channel in enumerate(model.spec.obs) if channel.name not in setpoints]
    parts = (rows.obs[obs_rows][..., read], rows.action[action_rows])
    columns = np.concatenate([x.reshape(len(indices), -1) for x in parts], axis=1, dtype=np.float64)
    spread = columns.std(axis=0)
    columns = (columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1)
    columns = np.clip(columns, -CLIP, CLIP)
    action = rows.action[indices].astype(np.float64)
    action = action - action.mean(axis=0)
    return action - columns @ np.linalg.lstsq(columns, action, rcond=1e-8)[0]


def _slope(
    move: Float[np.ndarray, " row"],
    answer: Float[np.ndarray, "row lag"],
    episode: Int[np.ndarray, " row"],
) -> tuple[Float[np.ndarray, " lag"], Float[np.ndarray, " lag"]]:
    """Least-squares slope of an answer on the moves, and its standard error over episodes."""
    total = (move**2).sum()
    slope = move @ answer / total
    rest = move[:, None] * (answer - move[:, None] * slope)
    groups, group = np.unique(episode, return_inverse=True)
    sums = np.zeros((len(groups), answer.shape[1]))
    np.add.at(sums, group, rest)
    few = len(groups) / max(len(groups) - 1, 1)
    return slope, np.sqrt(few * (sums**2).sum(axis=0)) / total
