"""Who recorded the episodes of a log: modes of a plant, shifts, operators."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_envs import Dataset
from neorl_envs.plants import Plant


def behaviours_of(dataset: Dataset) -> tuple[str, ...]:
    """The names of those who recorded the log; none if it does not state them."""
    return () if dataset.behaviour is None else tuple(dataset.attributes.get("behaviours", ()))


def imitation_name(behaviour: str) -> str:
    """The name of the controller that imitates a behaviour, ``"imitated-B"`` for ``"B"``."""
    return f"imitated-{behaviour}"


def own_episodes(dataset: Dataset, name: str) -> Any:
    """Whether a controller generated each episode; ``None`` if the log does not state it.

    The episodes of an imitation are those of the behaviour that it imitates.
    """
    for number, behaviour in enumerate(behaviours_of(dataset)):
        if name in (behaviour, imitation_name(behaviour)):
            return np.asarray(dataset.behaviour) == number
    return None


def incumbent_episodes(dataset: Dataset, name: str) -> Any:
    """Whether the controller that runs today alone recorded each episode; ``None`` if unknown.

    A converted log does not state who acted, but which loops were in manual: the episodes without
    such a row are those of the controller. In the others operators took part, whom no replay of
    the controller repeats.
    """
    own = own_episodes(dataset, name)
    if own is not None or not name or behaviours_of(dataset) or dataset.mode is None:
        return own
    lengths = np.asarray(dataset.episode_lengths)
    by_hand = np.asarray(dataset.mode, bool).any(axis=1)
    own = ~np.logical_or.reduceat(by_hand, np.cumsum(lengths) - lengths)
    return own if own.any() else None


def recorded_tunings(environment: Plant, dataset: Dataset | None) -> dict[str, int]:
    """Number of episodes of every tuning that recorded a part of a log.

    By name, in the order of the log; empty if the log does not state who acted.
    """
    if dataset is None or dataset.behaviour is None:
        return {}
    names, tunings = list(dataset.attributes.get("behaviours", ())), environment.tunings()
    counts = np.bincount(np.asarray(dataset.behaviour), minlength=len(names))
    return {
        name: int(count)
        for name, count in zip(names, counts, strict=True)
        if count and name in tunings
    }


def usual_incumbent(environment: Plant, dataset: Dataset | None) -> tuple[str, str]:
    """The tuning that runs on a plant today if nobody names one.

    It is the plant's first tuning, unless the log states that other tunings recorded it and the
    first one recorded nothing: then it is the tuning with the most episodes.

    Also returns a sentence if it is not the first tuning; otherwise an empty one.
    """
    first, recorded = next(iter(environment.tunings())), recorded_tunings(environment, dataset)
    if dataset is None or not recorded or first in recorded:
        return first, ""
    name = max(recorded, key=lambda tuning: recorded[tuning])
    return name, (
        f"{name} is taken as today's controller, because it recorded {recorded[name]} of "
        f"{dataset.n_episodes} episodes of the log and {first}, the plant's first tuning, none "
        f"(name another with `--evaluation.incumbent '{first}'`)"
    )


def padded_episodes(dataset: Dataset) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Observations, actions and mask of all episodes, one episode per row, padded at its end.

    Returns:
        Shapes ``(episode, time, obs)``, ``(episode, time, act)`` and ``(episode, time)``; the mask
        is false for padding, for masked rows and for lost readings.
    """
    columns: Any = dataset.transitions
    rows, mask = dataset.padded_rows()
    obs, action = np.asarray(columns.obs)[rows], np.asarray(columns.action)[rows]
    counted = mask & np.isfinite(obs).all(axis=2)
    return jnp.asarray(obs), jnp.asarray(action), jnp.asarray(counted)
