"""The prediction of a plant model for a controller none of whose episodes it has seen.

A mode of a log is a controller that recorded a part of it. To a model that was fitted without the
episodes of one mode, this controller is what any candidate is: it never acted in the data. What it
does on the plant is nevertheless in the log.
"""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from neorl_agents.models import LogRows, PredictedEpisodes
from neorl_agents.retuning._choice import bounded_costs, replayed
from neorl_agents.retuning._learned_plants import (
    DEFAULT_SETTINGS,
    LEAST_EPISODES,
    NO_FACTS,
    HeldOutMode,
    LearnedPlants,
    ModeOutcome,
    PlantFacts,
    RetuneSettings,
    plants_of_rows,
    replay_of,
    rows_of,
    split_episodes,
)
from neorl_core import InputError, Policy, Spec

REPLAYS = 120
"""Largest number of episodes in which a mode is replayed; they are cheap beside a fit."""


class Mode(NamedTuple):
    """A controller that recorded a part of a log.

    Attributes:
        name: Name of the controller.
        policy: The controller, in physical units.
        recorded: Whether it and its operators recorded each episode of the log, shape
            ``(episode,)``.
    """

    name: str
    policy: Policy
    recorded: Bool[np.ndarray, " episode"]


class OwnReplay(NamedTuple):
    """A mode replayed in its own held-out episodes.

    Attributes:
        predicted: Return and costs in the networks, shape ``(network, episode, 1 + cost)``; of a
            cost the quantity that its limit bounds.
        logged: The same as logged, shape ``(episode, 1 + cost)``.
        all_logged: The same of all its episodes in the log.
    """

    predicted: Float[np.ndarray, "network episode outcome"]
    logged: Float[np.ndarray, "episode outcome"]
    all_logged: Float[np.ndarray, "logged_episode outcome"]


def own_replay(
    plants: LearnedPlants,
    mode: Mode,
    seed: int,
    facts: PlantFacts = NO_FACTS,
    settings: RetuneSettings = DEFAULT_SETTINGS,
) -> OwnReplay:
    """Replays a mode in those of its own episodes that the model was not fitted to.

    Args:
        plants: Result of :func:`learned_plants` for the whole log.
        mode: The mode.
        seed: The seed of ``plants``.
        facts: The declarations of ``plants``.
        settings: The settings of ``plants``.

    Raises:
        InputError: If the mode has too few episodes.
    """
    rows, spec = plants.rows, plants.model.spec
    starts = np.unique(rows.start)
    held_out, _ = split_episodes(starts, seed, settings.held_out_fraction)
    own = held_out[mode.recorded[np.searchsorted(starts, held_out)]][:REPLAYS]
    count = int(mode.recorded.sum())
    if count < LEAST_EPISODES or len(own) < 2:
        raise InputError(
            f"the log has {count} episodes of {mode.name}, {len(own)} of them held out; to check "
            f"the model with them, it needs at least {LEAST_EPISODES}, two of them held out"
        )
    replay = replayed(replay_of(plants.model, rows, own, facts), mode.policy)
    logged = logged_outcomes(rows, spec)
    at = np.searchsorted(starts, own)
    return OwnReplay(_networks(replay, spec), logged[at], logged[mode.recorded])


def evaluation_replay(plants: LearnedPlants, policy: Policy) -> OwnReplay:
    """Replays a policy in all evaluation episodes, for a log that does not say who recorded it.

    Args:
        plants: Result of :func:`learned_plants`.
        policy: The controller that runs today, which is taken to have recorded the log.
    """
    rows, spec = plants.rows, plants.model.spec
    logged = logged_outcomes(rows, spec)
    at = np.searchsorted(np.unique(rows.start), plants.evaluation_starts)
    return OwnReplay(_networks(replayed(plants.evaluation_plant, policy), spec), logged[at], logged)


def mode_outcome(replay: OwnReplay) -> ModeOutcome:
    """What a log shows of a mode, and what it would show without the operators.

    The mean of the replayed episodes is corrected by regression on the logged ones, since the log
    has many more episodes than are replayed: where the replay repeats the log, the result is the
    mean of all logged episodes.

    Args:
        replay: Result of :func:`own_replay`.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        predicted, logged = replay.predicted.mean(axis=0), replay.logged
        deviation = logged - logged.mean(axis=0)
        slope = (deviation * (predicted - predicted.mean(axis=0))).sum(axis=0)
        slope = np.nan_to_num(np.clip(slope / (deviation**2).sum(axis=0), 0.0, 1.0))
        mean = replay.all_logged.mean(axis=0)
        expected = predicted.mean(axis=0) + slope * (mean - logged.mean(axis=0))
        error = np.hypot(
            _standard_error(predicted - slope * logged),
            slope * _standard_error(replay.all_logged),
        )
    return ModeOutcome(mean, expected, error, len(replay.all_logged), len(logged))


def held_out_mode(
    plants: LearnedPlants,
    mode: Mode,
    outcomes: Sequence[ModeOutcome],
    seed: int,
    facts: PlantFacts = NO_FACTS,
    settings: RetuneSettings = DEFAULT_SETTINGS,
    incumbent: Policy | None = None,
) -> HeldOutMode:
    """Fits a model without any episode of a mode, and predicts this mode with it.

    The controller acts in held-out episodes of the other modes, with their starts and their
    residuals, as a candidate does that never acted on the plant. Nothing that the mode recorded
    enters its prediction.

    Args:
        plants: Result of :func:`learned_plants` for the whole log.
        mode: The mode to leave out.
        outcomes: :func:`mode_outcome` of all modes with enough episodes, this one first.
        seed: Seed of the split and the fit.
        facts: Declarations about the plant.
        settings: Settings of the model.
        incumbent: Controller that runs today, with whose distance from the data that of the mode is
            compared; unknown by default.

    Raises:
        InputError: If the other modes have too few episodes.
    """
    spec, starts = plants.model.spec, np.unique(plants.rows.start)
    others = starts[~mode.recorded]
    if len(others) < LEAST_EPISODES:
        raise InputError(
            f"without {mode.name} the log has {len(others)} episodes; a plant model needs at least "
            f"{LEAST_EPISODES}"
        )
    settings = dataclasses.replace(settings, evaluation_episodes=REPLAYS)
    without = plants_of_rows(rows_of(plants.rows, others), spec, seed, facts, settings)
    replay = replayed(without.evaluation_plant, mode.policy)
    predicted = _networks(replay, spec).mean(axis=0)
    own = outcomes[0]
    with np.errstate(invalid="ignore"):
        chance = np.hypot(_standard_error(predicted), own.error)
    return HeldOutMode(
        mode.name,
        own,
        predicted.mean(axis=0),
        np.where(np.isfinite(chance), chance, 0.0),
        np.ptp([one.expected for one in outcomes], axis=0),
        len(predicted),
        float(np.mean(replay.outside[:-1])),
        0.0
        if incumbent is None
        else float(np.mean(replayed(without.evaluation_plant, incumbent).outside[:-1])),
    )


def held_out_modes(
    plants: LearnedPlants,
    modes: Sequence[Mode],
    seed: int,
    facts: PlantFacts = NO_FACTS,
    settings: RetuneSettings = DEFAULT_SETTINGS,
    *,
    incumbent: str = "",
    most: int = 3,
) -> tuple[HeldOutMode, ...]:
    """Leaves modes of a log out of the fit, one after the other.

    The mode of the incumbent stays in every fit, because a log from which a candidate is chosen
    contains today's controller. If more modes than ``most`` remain, those are left out whose return
    differs most from the incumbent's, or from the mean of all modes if it recorded nothing.

    Args:
        plants: Result of :func:`learned_plants` for the whole log.
        modes: Controllers that recorded parts of the log; those with few episodes are skipped.
        seed: The seed of ``plants``.
        facts: The declarations of ``plants``.
        settings: The settings of ``plants``.
        incumbent: Name of the controller that runs today; unknown by default.
        most: Largest number of modes to leave out; each costs a fit.

    Returns:
        The modes left out; none if fewer than two have enough episodes.
    """
    outcomes: dict[str, ModeOutcome] = {}
    for mode in modes if most > 0 else ():
        with contextlib.suppress(InputError):
            outcomes[mode.name] = mode_outcome(own_replay(plants, mode, seed, facts, settings))
    if len(outcomes) < 2:
        return ()
    returns = {name: float(one.expected[0]) for name, one in outcomes.items()}
    middle = returns.get(incumbent, float(np.mean(list(returns.values()))))
    left_out = [mode for mode in modes if mode.name in outcomes and mode.name != incumbent]
    left_out.sort(key=lambda mode: -abs(returns[mode.name] - middle))
    today = next((mode.policy for mode in modes if mode.name == incumbent), None)
    predicted: list[HeldOutMode] = []
    for mode in left_out[:most]:
        order = [outcomes[mode.name], *(one for key, one in outcomes.items() if key != mode.name)]
        with contextlib.suppress(InputError):  # too few episodes remain without it
            predicted.append(held_out_mode(plants, mode, order, seed, facts, settings, today))
    return tuple(predicted)


def logged_outcomes(rows: LogRows, spec: Spec) -> Float[np.ndarray, "episode outcome"]:
    """Logged return of every episode, and of every cost the quantity that its limit bounds."""
    starts = np.unique(rows.start)
    outcome = rows.outcome.astype(np.float64)
    sums, worst = np.add.reduceat(outcome, starts), np.maximum.reduceat(outcome, starts)
    of_step = np.asarray([False, *(c.per == "step" for c in spec.cost)])
    return np.where(of_step, worst, sums)


def _networks(
    replay: PredictedEpisodes, spec: Spec
) -> Float[np.ndarray, "network episode outcome"]:
    """Return and costs of every episode in every network, without the linear part."""
    costs = np.asarray(bounded_costs(replay, spec), np.float64)
    with np.errstate(invalid="ignore"):
        returns = np.asarray(replay.returns, np.float64)[..., None]
    return np.concatenate([returns, costs], axis=-1)[:-1]


def _standard_error(values: Float[np.ndarray, "episode outcome"]) -> Float[np.ndarray, " outcome"]:
    return values.std(axis=0, ddof=1) / np.sqrt(len(values))
