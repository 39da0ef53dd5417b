"""How much a candidate is predicted to move the actuators, and how steady the plant is then."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from neorl_agents.models import ReplayedPlant, every_start, visited_rows
from neorl_agents.retuning import half_width
from neorl_core import Policy, as_arrays
from neorl_train.judging._tables import Estimate

Z = 1.96
"""Standard errors between episodes in an interval, as for the predicted gain."""


class PredictedMovement(NamedTuple):
    """Movement in the replayed episodes of a plant model, as means over episodes and networks.

    An interval covers the variation between episodes, widened by the standard deviation between the
    networks.

    Attributes:
        travel: Mean absolute move of every action per step, in its unit.
        deviation: Standard deviation within an episode of every predicted observation, in its unit.
            It contains the moves of a setpoint that the observation follows.
        error: Mean size of setpoint minus measurement of every loop that was named, in its unit.
    """

    travel: tuple[Estimate, ...]
    deviation: tuple[Estimate, ...]
    error: tuple[Estimate, ...] = ()


def predicted_movement(
    plant: ReplayedPlant, policy: Policy, loops: Sequence[tuple[str, str]] = ()
) -> PredictedMovement:
    """Movement under a policy in all networks and episodes of a learned plant.

    Args:
        plant: Learned plant, of episodes that neither the model nor a search has used.
        policy: Policy in physical units that ignores its key.
        loops: Observations that are the measurement and the setpoint of each loop.
    """
    members, episodes = plant.model.members, plant.n_episodes
    starts = every_start(plant, range(members), range(episodes))
    rows: Any = jax.device_get(visited_rows(plant, as_arrays(policy), starts))
    weight = np.asarray(rows.alive, np.float64)[..., None]
    action, obs = (np.asarray(column, np.float64) for column in (rows.action, rows.obs))
    steps = np.maximum(weight.sum(axis=1), 1e-12)
    moves, both = np.abs(np.diff(action, axis=1)), weight[:, 1:]
    travel = (moves * both).sum(axis=1) / np.maximum(both.sum(axis=1), 1e-12)
    names = [channel.name for channel in plant.spec.obs]
    pairs = [(names.index(measured), names.index(wanted)) for measured, wanted in loops]
    apart = np.stack([np.abs(obs[..., b] - obs[..., a]) for a, b in pairs], -1) if pairs else None
    obs = obs[..., list(plant.model.predicted)]
    away = obs - ((obs * weight).sum(axis=1) / steps)[:, None]
    deviation = np.sqrt((away**2 * weight).sum(axis=1) / steps)
    shape = members, episodes, -1
    mean = np.zeros((*shape[:2], 0))
    if apart is not None:
        mean = ((apart * weight).sum(axis=1) / steps).reshape(shape)
    return PredictedMovement(
        _estimates(travel.reshape(shape)), _estimates(deviation.reshape(shape)), _estimates(mean)
    )


def _estimates(values: Float[np.ndarray, "member episode quantity"]) -> tuple[Estimate, ...]:
    mean = values.mean(axis=(0, 1))
    reach = half_width(values, Z)
    return tuple(
        Estimate(float(m), float(max(m - r, 0.0)), float(m + r))
        for m, r in zip(mean, reach, strict=True)
    )


def movement_rows(
    plant: ReplayedPlant,
    policies: Mapping[str, Policy],
    loops: Sequence[tuple[str, str]] = (),
) -> list[dict[str, str | list[float]]]:
    """Movement under several policies, as plain JSON.

    Args:
        plant: Learned plant.
        policies: The policies by the names of their fields.
        loops: Observations that are the measurement and the setpoint of each loop.

    Returns:
        For every loop, action and predicted observation: ``kind``, ``name``, ``unit``, and for
        each policy the value and its interval. No row if a rollout diverges.
    """
    movements = {
        name: predicted_movement(plant, policy, loops) for name, policy in policies.items()
    }
    values = [one.high for movement in movements.values() for kind in movement for one in kind]
    if not np.isfinite(values).all():
        return []
    measured = {channel.name: channel for channel in plant.spec.obs}
    channels = [("error", i, measured[name]) for i, (name, _) in enumerate(loops)]
    channels += [("travel", i, channel) for i, channel in enumerate(plant.spec.action)]
    channels += [
        ("deviation", i, plant.spec.obs[column]) for i, column in enumerate(plant.model.predicted)
    ]
    rows: list[dict[str, str | list[float]]] = []
    for kind, i, channel in channels:
        row: dict[str, str | list[float]] = {
            "kind": kind, "name": channel.name, "unit": channel.unit,
        }  # fmt: skip
        for name, movement in movements.items():
            one = getattr(movement, kind)[i]
            row[name] = [one.value, one.low, one.high]
        rows.append(row)
    return rows
