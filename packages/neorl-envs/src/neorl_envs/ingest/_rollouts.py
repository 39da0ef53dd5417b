"""Rollouts: episodes as in Gymnasium, with one observation more than actions."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from neorl_core import Channel, CostChannel, Spec
from neorl_envs.datasets._checks import DatasetError, require_flags
from neorl_envs.datasets._dataset import Dataset, dataset_from_columns


class Rollout(NamedTuple):
    """One episode of ``T`` steps.

    Attributes:
        observations: Observations from the reset to the end, shape ``(T + 1, obs)``.
        actions: Actions, shape ``(T, act)``.
        rewards: Rewards, shape ``(T,)``.
        terminations: Whether the plant ended the episode, shape ``(T,)``.
        truncations: Whether the episode was truncated, shape ``(T,)``; if neither flag is set in
            the last row, it counts as truncated.
        costs: Costs, shape ``(T, cost)``; the second axis may be empty.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray
    costs: np.ndarray


def collect_rollouts(
    env: gymnasium.Env,
    act: Callable[[np.ndarray], np.ndarray],
    *,
    n_steps: int,
    seed: int,
    costs: tuple[str, ...] = (),
) -> Iterator[Rollout]:
    """Runs a Gymnasium environment; every episode except the last is complete.

    Args:
        env: Environment with one-dimensional box spaces and without automatic resets.
        act: Function that returns the action for an observation.
        n_steps: Number of steps; the last episode is truncated when they are reached.
        seed: Seed of the first reset, which determines all episodes.
        costs: Entries of the step's ``info`` that are costs.

    Yields:
        The episodes.

    Raises:
        DatasetError: If a step lacks such an entry, or ``n_steps`` is below one.
    """
    if n_steps < 1:
        raise DatasetError(f"n_steps must be 1 or more, got {n_steps}")
    steps_left = n_steps
    for episode in itertools.count():
        obs, _ = env.reset(seed=seed if episode == 0 else None)
        observations, rows = [np.asarray(obs, np.float32)], []
        while steps_left:
            action = np.asarray(act(observations[-1]), np.float32)
            obs, reward, terminated, truncated, info = env.step(action)
            missing = [name for name in costs if name not in info]
            if missing:
                raise DatasetError(
                    f"{env}: the information of a step has no {missing[0]!r}, only {sorted(info)}"
                )
            observations.append(np.asarray(obs, np.float32))
            rows.append((action, reward, terminated, truncated, [info[name] for name in costs]))
            steps_left -= 1
            if terminated or truncated:
                break
        if rows:
            action, reward, terminated, truncated, cost = zip(*rows, strict=True)
            yield Rollout(
                np.stack(observations),
                np.stack(action),
                np.asarray(reward, np.float32),
                np.asarray(terminated, np.bool_),
                np.asarray(truncated, np.bool_),
                np.asarray(cost, np.float32).reshape(len(rows), len(costs)),
            )
        if not steps_left:
            return


def rollouts_of(dataset: Dataset) -> Iterator[Rollout]:
    """Yields the episodes of a dataset as rollouts.

    Raises:
        DatasetError: If the observation after a step differs from the one before the next step,
            since a rollout stores both as one.
    """
    for index in range(dataset.n_episodes):
        rows: Any = dataset.episode(index)
        before, after = rows.obs[1:], rows.next_obs[:-1]
        differing = np.flatnonzero(
            ~((before == after) | (np.isnan(before) & np.isnan(after))).all(1)
        )
        if differing.size:
            raise DatasetError(
                f"episode {index}, row {differing[0]}: next_obs differs from the observation of "
                "the next row, and a rollout keeps one of them; repair it"
            )
        yield Rollout(
            np.concatenate([rows.obs, rows.next_obs[-1:]]),
            np.asarray(rows.action),
            np.asarray(rows.reward),
            np.asarray(rows.terminated),
            np.asarray(rows.truncated),
            np.asarray(rows.cost),
        )


def dataset_from_rollouts(
    spec: Spec, rollouts: Iterable[Rollout], *, source: str = "rollouts", **options: Any
) -> Dataset:
    """Builds a dataset from complete episodes.

    Args:
        spec: Channels, period and horizon, for example from :func:`spec_of_spaces`.
        rollouts: The episodes, each with at least one step.
        source: Name used in error messages.
        options: Further columns for :func:`neorl_envs.datasets.dataset_from_columns`.

    Returns:
        The dataset.

    Raises:
        DatasetError: Naming the episode and field of the first inconsistency.
    """
    episodes = list(rollouts)
    if not episodes:
        raise DatasetError(f"{source}: there is no episode")
    for index, episode in enumerate(episodes):
        check_rollout(episode, f"{source}: episode {index}")
    ends = np.cumsum([len(episode.rewards) for episode in episodes]) - 1
    columns = {
        name: join_rows([np.asarray(getattr(e, name)) for e in episodes], name, source)
        for name in ("actions", "rewards", "terminations", "truncations", "costs")
    }
    truncated = columns["truncations"].astype(np.bool_)
    truncated[ends] |= ~columns["terminations"].astype(np.bool_)[ends]
    return dataset_from_columns(
        spec,
        obs=join_rows([e.observations[:-1] for e in episodes], "observations", source),
        next_obs=np.concatenate([e.observations[1:] for e in episodes]),
        action=columns["actions"],
        reward=columns["rewards"],
        terminated=columns["terminations"],
        truncated=truncated,
        cost=columns["costs"],
        source=source,
        **options,
    )


def join_rows(parts: Sequence[np.ndarray], field: str, source: str) -> np.ndarray:
    """Joins the rows of a field over all episodes.

    Raises a ``DatasetError`` naming the first episode whose rows have a different shape.
    """
    for index, part in enumerate(parts):
        if part.shape[1:] != parts[0].shape[1:]:
            raise DatasetError(
                f"{source}: episode {index}: field '{field}': expected rows of shape "
                f"{parts[0].shape[1:]} as in episode 0, got {part.shape[1:]}"
            )
    return np.concatenate(parts)


def check_rollout(episode: Rollout, where: str) -> None:
    n = len(episode.rewards)
    if n == 0:
        raise DatasetError(f"{where}: field 'rewards' is empty; leave the episode out")
    for name in Rollout._fields:
        column = getattr(episode, name)
        if np.ndim(column) == 0:
            raise DatasetError(
                f"{where}: field '{name}': expected one row per step, got one number"
            )
        expected = n + 1 if name == "observations" else n
        if len(column) != expected:
            raise DatasetError(
                f"{where}: field '{name}': expected {expected} rows beside {n} rewards, got "
                f"{len(column)}"
            )
    ended = np.zeros(n, np.bool_)
    for name in ("terminations", "truncations"):
        column = np.asarray(getattr(episode, name))
        require_flags(where, name, column)
        ended |= column.astype(np.bool_)
    early = np.flatnonzero(ended[:-1])
    if early.size:
        raise DatasetError(
            f"{where}, row {early[0]}: it is terminated or truncated, and {n - 1 - early[0]} rows "
            "follow; cut the episode there"
        )


def spec_of_spaces(
    env: gymnasium.Env, *, dt: float, horizon: int, costs: tuple[CostChannel, ...] = ()
) -> Spec:
    """Builds a specification from one-dimensional box spaces.

    Units are unknown. Channels have the names that the environment declares in its metadata, as
    ``observation_names`` and ``action_names``, or numbers.

    Raises:
        DatasetError: If a space is not a one-dimensional box, an action is not bounded, or there
            are more or fewer names than channels.
    """
    channels = {}
    spaces = {"obs": env.observation_space, "action": env.action_space}
    for (kind, space), entry in zip(spaces.items(), ("observation", "action"), strict=True):
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            raise DatasetError(f"the {kind} space must be a box of one axis, got {space}")
        low, high = (np.asarray(end, np.float64) for end in (space.low, space.high))
        if kind == "action" and not (np.isfinite(low) & np.isfinite(high)).all():
            raise DatasetError(f"the action space must have finite bounds, got {space}")
        # An unbounded range is cut to values whose squares do not overflow in single precision.
        low, high = np.maximum(low, -1e18), np.minimum(high, 1e18)
        declared = env.unwrapped.metadata.get(f"{entry}_names")
        names = declared or [f"{kind}_{i}" for i in range(len(low))]
        if len(names) != len(low):
            raise DatasetError(
                f"the metadata of the environment has {len(names)} {entry}_names, and its {kind} "
                f"space has {len(low)} channels; name each of them"
            )
        channels[kind] = tuple(
            Channel(name, "?", float(a), float(b))
            for name, a, b in zip(names, low, high, strict=True)
        )
    return Spec(channels["obs"], channels["action"], costs, dt, horizon)
