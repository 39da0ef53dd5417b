"""The log that a plant model needs, its held-out episodes, and the model's errors in them."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from neorl_agents.models._history_model import HistoryModel, exogenous_indices
from neorl_agents.models._log_rows import LogRows, histories
from neorl_agents.models._replayed_plant import ReplayedPlant, ReplayedStart, ReplayedState
from neorl_core import InputError, Spec, Transition

# Requirements on a log for a model of the plant, and the choice of held-out episodes.


def held_out_rows(terminated: Any, truncated: Any, share: float, *, xp: Any = np) -> Any:
    """Whether each row belongs to a held-out episode: every ``round(1 / share)``-th.

    In a log with fewer episodes it is the last one. The choice depends only on the log, so that a
    model and its evaluation agree on it without exchanging data.

    With a ``share`` of 0 there are none. ``xp`` is ``numpy`` on the host, ``jax.numpy`` in a
    program.
    """
    ends = xp.asarray(terminated, bool) | xp.asarray(truncated, bool)
    if share == 0:
        return xp.zeros_like(ends)
    number = xp.cumsum(ends) - ends
    interval = xp.minimum(round(1 / share), number[-1] + 1)
    return (number % interval == interval - 1) & (interval > 1)


def exogenous_mask(spec: Spec, names: Sequence[str]) -> Float[Array, " obs"]:
    """1 for every observation that is predicted, 0 for those that no controller influences.

    Raises an ``InputError`` if a name is not an observation, or nothing is left to predict.
    """
    mask = np.ones(spec.n_obs, np.float32)
    mask[list(exogenous_indices(spec, names))] = 0
    return jnp.asarray(mask)


def require_model_log(
    learner: str, spec: Spec, rows: Transition, exogenous: Sequence[str], held_out: float
) -> None:
    """Refuses a log from which no model can be learned, before anything is compiled.

    Raises an ``InputError`` if a name is not an observation, if any action or all predicted
    observations are constant, if a log with one episode is to be split, or if fewer rows are left
    than a one-step linear map has coefficients.
    """
    exogenous_columns = set(exogenous_indices(spec, exogenous))
    known = slice(None) if rows.mask is None else np.asarray(rows.mask, bool)
    columns = (rows.action, rows.obs, rows.next_obs)
    action, obs, next_obs = (np.asarray(column)[known] for column in columns)
    constant = [
        channel.name
        for channel, column in zip(spec.action, action.T, strict=True)
        if np.ptp(column) == 0
    ]
    if constant:
        raise InputError(
            f"the action {', '.join(constant)} is constant in the log, so a model cannot learn its "
            "effect; give a log in which it varies, or a learner without a model, such as bc"
        )
    predicted = [i for i in range(spec.n_obs) if i not in exogenous_columns]
    if not np.any(obs[:, predicted] != next_obs[:, predicted]):
        raise InputError(
            "the observations that the model predicts never change in the log, so there is "
            "nothing to model; check next_obs of the log and the channels declared exogenous"
        )
    ends = np.asarray(rows.terminated, bool) | np.asarray(rows.truncated, bool)
    episodes = int(ends[:-1].sum()) + 1
    if held_out and episodes < 2:
        raise InputError(
            f"the log has one episode, but {learner} holds out whole episodes to compare the "
            "members of its model; record more episodes, split this one into several, or set "
            "held_out of the learner's model to 0"
        )
    needed = spec.n_obs + spec.n_action + 1
    n_fitted = int(np.sum(~held_out_rows(rows.terminated, rows.truncated, held_out)))
    if n_fitted < needed:
        raise InputError(
            f"a model of {spec.n_obs} observations and {spec.n_action} actions needs at least "
            f"{needed} rows, but the log has {n_fitted} outside the held-out episodes; record more"
        )


# Errors of a plant model in free runs over episodes that it was not fitted to.


WINDOWS = 200
"""Largest number of places in the log at which free runs begin."""
AHEAD = (1, 2, 5, 10, 20, 50, 100, 200)
"""Numbers of steps ahead at which predictions are compared with the log."""


class ErrorsAhead(NamedTuple):
    """Errors of the predicted observations, by steps since the last logged observation.

    Attributes:
        steps: Steps ahead, shape ``(horizon,)``.
        networks: Root mean square error of the networks' mean, in standard deviations of each
            channel in the log, shape ``(horizon, predicted)``.
        linear: The same for the linear part.
        unchanged: The same for the prediction that every channel stays as it is.
        windows: Number of places at which the predictions begin.
    """

    steps: tuple[int, ...]
    networks: Float[np.ndarray, "horizon predicted"]
    linear: Float[np.ndarray, "horizon predicted"]
    unchanged: Float[np.ndarray, "horizon predicted"]
    windows: int


class FreeEpisodes(NamedTuple):
    """Whole episodes, predicted from their first row with the logged actions.

    Attributes:
        obs: Predicted observations, the linear part as last member, shape
            ``(member, episode, time, obs)``; repeated beyond the end of an episode.
        logged: Logged observations, shape ``(episode, time, obs)``.
        lengths: Number of steps of every episode.
        outcome: Predicted sums of reward and costs, shape ``(member, episode, 1 + cost)``.
        outcome_logged: Logged sums, shape ``(episode, 1 + cost)``.
        spread: Standard deviation of these sums over all episodes of the log, ``(1 + cost,)``.
    """

    obs: Float[np.ndarray, "member episode time obs"]
    logged: Float[np.ndarray, "episode time obs"]
    lengths: Int[np.ndarray, " episode"]
    outcome: Float[np.ndarray, "member episode outcome"]
    outcome_logged: Float[np.ndarray, "episode outcome"]
    spread: Float[np.ndarray, " outcome"]


def errors_ahead(
    model: HistoryModel, rows: LogRows, episodes: Int[np.ndarray, " episode"], seed: int
) -> ErrorsAhead:
    """Errors of the model several steps ahead, with the logged actions.

    Args:
        model: The model.
        rows: The log.
        episodes: First rows of episodes that the model was not fitted to.
        seed: Seed of the places at which predictions begin.

    Returns:
        Errors at those of :data:`AHEAD` that the episodes are long enough for.
    """
    lengths = _lengths(rows, episodes)
    steps = tuple(n for n in AHEAD if n <= lengths.max())
    span = steps[-1]
    long_enough = lengths >= span
    indices = np.concatenate(
        [
            s + np.arange(n - span + 1)
            for s, n in zip(episodes[long_enough], lengths[long_enough], strict=True)
        ]
    )
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(indices, min(WINDOWS, len(indices)), replace=False))
    obs = _free_runs(model, rows, chosen[:, None] + np.arange(span))
    index = np.asarray(steps) - 1
    logged = rows.next_obs[chosen[:, None] + np.arange(span)][:, index]
    before = rows.obs[chosen][:, None]
    scale = np.asarray(model.scales.obs[1], np.float64)

    def error(predicted: Any) -> np.ndarray:
        difference = (np.asarray(predicted, np.float64) - logged) / scale
        return np.sqrt(np.mean(difference**2, axis=0))[:, list(model.predicted)]

    return ErrorsAhead(
        steps,
        error(obs[:-1].mean(axis=0)[:, index]),
        error(obs[-1][:, index]),
        error(before),
        len(chosen),
    )


def free_episodes(
    plant: ReplayedPlant, rows: LogRows, episodes: Int[np.ndarray, " episode"]
) -> FreeEpisodes:
    """Predicts whole episodes from their first row with the logged actions, without residuals.

    Channels that the model does not predict take their logged values.

    Args:
        plant: Learned plant that replays these episodes.
        rows: The log.
        episodes: First rows of the episodes, in the order of the plant.
    """
    lengths = np.minimum(_lengths(rows, episodes), plant.horizon)
    times = np.arange(lengths.max())
    indices = episodes[:, None] + np.minimum(times, lengths[:, None] - 1)
    no_residuals = plant.episodes._replace(
        residual=jnp.zeros_like(plant.episodes.residual),
        outcome_residual=jnp.zeros_like(plant.episodes.outcome_residual),
    )
    undisturbed = dataclasses.replace(plant, episodes=no_residuals)
    actions = jnp.asarray(rows.action[indices])
    members = [_rollout(undisturbed, jnp.asarray(m), actions) for m in range(plant.members)]
    obs, outcome = (np.stack(column) for column in zip(*jax.device_get(members), strict=True))
    in_episode = times < lengths[:, None]
    starts = np.unique(rows.start)
    sums = np.add.reduceat(rows.outcome.astype(np.float64), starts)
    return FreeEpisodes(
        obs,
        rows.next_obs[indices],
        lengths,
        np.asarray(np.sum(outcome * in_episode[None, ..., None], axis=2, dtype=np.float64)),
        sums[np.searchsorted(starts, episodes)],
        sums.std(axis=0),
    )


@jax.jit
def _rollout(plant: ReplayedPlant, member: Array, actions: Array) -> tuple[Array, Array]:
    """Observations and outcomes of every episode in one member, with the logged actions."""

    def run_one(episode: Array, action_rows: Array) -> tuple[Array, Array]:
        start = ReplayedStart(episode, member)

        def step(state: ReplayedState, action: Array) -> tuple[ReplayedState, Any]:
            state, obs_rows = plant.step(start, state, action)
            return state, (obs_rows.obs, jnp.append(obs_rows.reward, obs_rows.cost))

        return jax.lax.scan(step, plant.reset(start)[0], action_rows)[1]

    return jax.vmap(run_one)(jnp.arange(len(actions)), actions)


MOVES = 100
"""Largest number of moves after which free runs begin."""


class ErrorAfterMoves(NamedTuple):
    """Error of free runs that begin with the largest moves of the actions.

    Attributes:
        share: Root mean square error of the networks' mean at the last step, over all predicted
            channels in standard deviations of the log, as a fraction of that of the better of two
            guesses: no change since the move, and the mean of the log.
        steps: Number of steps of every free run.
        moves: Number of moves.
    """

    share: float
    steps: int
    moves: int


def error_after_moves(
    model: HistoryModel, rows: LogRows, episodes: Int[np.ndarray, " episode"]
) -> ErrorAfterMoves | None:
    """How well the model alone predicts what follows moves that it was not fitted to.

    A replay adds the residuals of the log, so a controller that acts as logged gets what was
    logged, whatever the model says of an action. Free runs have no residuals, and begin where the
    actions moved most by what neither the predicted channels nor earlier actions explain: by hand,
    by a test signal, by a setpoint or a measured disturbance.

    Args:
        model: The model.
        rows: The log.
        episodes: First rows of episodes that the model was not fitted to.

    Returns:
        The error; ``None`` if no episode is long enough or no action moved by itself.
    """
    lengths = _lengths(rows, episodes)
    steps = max((n for n in AHEAD if n <= min(50, lengths.max() / 2)), default=0)
    usable = [
        s + np.arange(1, n - steps + 1) for s, n in zip(episodes, lengths, strict=True) if n > steps
    ]
    if not steps or not usable:
        return None
    indices = np.concatenate(usable)
    free = _free_moves(model, rows, indices)
    largest = np.argsort(-np.abs(free), axis=0)[: max(1, MOVES // free.shape[1])]
    chosen = np.unique(largest[:, np.any(free, axis=0)])
    if not len(chosen):
        return None
    begin = indices[chosen]
    columns, scale = list(model.predicted), np.asarray(model.scales.obs, np.float64)
    predicted = _free_runs(model, rows, begin[:, None] + np.arange(steps))[:-1, :, -1].mean(axis=0)
    logged = rows.next_obs[begin + steps - 1].astype(np.float64)
    guesses = (predicted, rows.obs[begin], scale[0])
    squares = [
        float(np.mean((((guess - logged) / scale[1])[:, columns]) ** 2)) for guess in guesses
    ]
    share = np.sqrt(squares[0] / max(min(squares[1:]), 1e-12))
    return ErrorAfterMoves(float(share), steps, len(begin))


def _free_moves(
    model: HistoryModel, rows: LogRows, indices: np.ndarray
) -> Float[np.ndarray, "row act"]:
    """The part of every action that the predicted channels and earlier actions do not explain."""
    obs_rows, action_rows = histories(rows, indices, model.history)
    parts = (rows.obs[obs_rows][..., list(model.predicted)], rows.action[action_rows])
    columns = np.concatenate([x.reshape(len(indices), -1) for x in parts], axis=1, dtype=np.float64)
    spread = columns.std(axis=0)
    columns = (columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1)
    action = rows.action[indices].astype(np.float64)
    action = action - action.mean(axis=0)
    return action - columns @ np.linalg.lstsq(columns, action, rcond=1e-8)[0]


def _lengths(rows: LogRows, episodes: np.ndarray) -> np.ndarray:
    ends = np.flatnonzero(rows.ends)
    return ends[np.searchsorted(ends, episodes)] - episodes + 1


def _free_runs(model: HistoryModel, rows: LogRows, indices: np.ndarray) -> Any:
    """Observations that every member predicts, shape ``(member, start, time, obs)``."""
    obs_rows, action_rows = histories(rows, indices[:, 0], model.history)
    initial = rows.obs[obs_rows], rows.action[action_rows]
    logged = rows.action[indices], rows.next_obs[indices]
    numbers = jnp.append(jnp.arange(model.members), -1)
    columns = [jnp.asarray(x) for x in (*initial, *logged)]
    return jax.device_get(jax.lax.map(lambda member: _of_member(model, member, *columns), numbers))


@jax.jit
def _of_member(
    model: HistoryModel,
    member: Array,
    obs: Array,
    action_rows: Array,
    actions: Array,
    logged: Array,
) -> Array:
    channels = jnp.asarray(model.predicted)

    def step(now: tuple[Array, Array], row: tuple[Array, Array]) -> tuple[Any, Array]:
        before, actions = now
        action, following = row
        after = following.at[channels].set(model.next_obs(before, actions, action, member))
        after = jnp.clip(after, model.scales.low, model.scales.high)
        past = jnp.concatenate([before[1:], after[None]])
        return (past, jnp.concatenate([actions[1:], action[None]])), after

    def run_one(obs: Array, action_rows: Array, actions: Array, logged: Array) -> Array:
        return jax.lax.scan(step, (obs, action_rows), (actions, logged))[1]

    return jax.vmap(run_one)(obs, action_rows, actions, logged)
