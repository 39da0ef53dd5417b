"""Scores from the sums of episodes, by which baselines are ranked."""

from typing import Any

import numpy as np

from neorl_envs.scoring._episodes import EpisodeScores


def scores(env: Any, episodes: EpisodeScores) -> np.ndarray:
    """Return minus the declared penalties for every episode, by which baselines are ranked.

    The score is ``total - sum_i weight_i cost_i`` with the plant's ``penalty_weights()``.

    Args:
        env: A plant.
        episodes: Episodes from :func:`neorl_envs.scoring.score_episodes`.

    Returns:
        Scores in the plant's unit of reward, shape ``(episode,)``.

    Example:
        >>> import neorl_envs
        >>> env = neorl_envs.make("ChemicalReactor-v0")
        >>> one, no = np.ones(1), np.zeros(1, np.bool_)
        >>> sums = EpisodeScores(80 * one, np.array([[2.0, 1.0]]), one, one, ~no, no)
        >>> bool(scores(env, sums)[0] < 80)
        True
    """
    weights = env.penalty_weights()
    penalty = np.asarray([weights.get(channel.name, 0.0) for channel in env.spec.cost])
    return np.asarray(episodes.total, np.float64) - np.asarray(episodes.cost, np.float64) @ penalty


def within_limits(env: Any, episodes: EpisodeScores) -> np.ndarray:
    """Which limits every episode satisfied over its whole length.

    A limit per step bounds the largest cost of a step, and a limit per episode bounds the sum. An
    episode that trips satisfies none of them, because the costs of the remaining steps are unknown.

    Args:
        env: A plant.
        episodes: Episodes from :func:`neorl_envs.scoring.score_episodes`.

    Returns:
        Whether each limit is satisfied, shape ``(episode, cost)``.

    Example:
        >>> import neorl_envs
        >>> env = neorl_envs.make("ChemicalReactor-v0")
        >>> one, no = np.ones(1), np.zeros(1, np.bool_)
        >>> sums = EpisodeScores(one, np.array([[1e9, 0.0]]), np.zeros((1, 2)), one, ~no, no)
        >>> within_limits(env, sums).tolist()
        [[False, True]]
        >>> within_limits(env, sums._replace(trip=~no)).tolist()
        [[False, False]]
    """
    channels = env.spec.cost
    sums, largest = (np.asarray(x) for x in (episodes.cost, episodes.worst))
    columns = [
        (largest if channel.per == "step" else sums)[:, i] <= channel.limit
        for i, channel in enumerate(channels)
    ]
    inside = np.stack(columns, axis=1) if columns else np.zeros((len(sums), 0), np.bool_)
    return inside & ~np.asarray(episodes.trip, np.bool_)[:, None]
