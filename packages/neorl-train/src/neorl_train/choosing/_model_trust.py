"""Whether a plant model predicts today's controller, and controllers that it was not fitted to."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from neorl_agents.retuning import (
    SURE,
    ChoiceRule,
    HeldOutMode,
    LearnedPlants,
    Mode,
    OwnReplay,
    PlantFacts,
    RetuneSettings,
    evaluation_replay,
    judging_modes,
    logged_outcomes,
    own_replay,
    replayed,
)
from neorl_core import CostChannel, InputError, Policy, Spec
from neorl_core.costs import limit_kind
from neorl_core.statistics import DEFAULT_LEVEL
from neorl_envs import Dataset
from neorl_train.data._behaviours import behaviours_of, imitation_name, own_episodes
from neorl_train.judging._rule import MAX_REPLAY_ERROR, ReplayCheck
from neorl_train.judging._summary import fraction_estimates
from neorl_train.judging._wording import narrowly, number, percent, quantity


class OwnReturns(NamedTuple):
    """Mean returns of the incumbent in the same logged episodes.

    Attributes:
        predicted: Mean return that the model predicts.
        logged: Mean logged return.
        episodes: Number of episodes.
    """

    predicted: float
    logged: float
    episodes: int


def own_returns(plants: LearnedPlants, incumbent: Policy) -> OwnReturns:
    """Replays the incumbent in the judging episodes that it recorded, or in all if none is known.

    In the episodes of others, its return differs from the logged one however good the model is.
    """
    own = plants.by_incumbent
    if own is None or not own.any():
        own = np.ones(len(plants.logged), bool)
    predicted = np.asarray(replayed(plants.evaluation_plant, incumbent).returns)[:-1, own]
    return OwnReturns(float(predicted.mean()), float(plants.logged[own].mean()), int(own.sum()))


RULE = ChoiceRule()
TITLE = "held-out mode"


class Check(NamedTuple):
    """One check of the model.

    Attributes:
        name: Name of the check.
        holds: Whether the model passed.
        sentence: The result, with units.
        decides: Whether the model may not be used if it fails.
    """

    name: str
    holds: bool
    sentence: str
    decides: bool = True


class ReplayedController(NamedTuple):
    """A controller that generated part of the log, replayed in its own episodes.

    Attributes:
        name: Name of the controller.
        episodes: Number of its held-out episodes.
        logged: Mean logged sums of reward and costs, shape ``(1 + cost,)``.
        predicted: The sums that the model predicts if only this controller acts.
    """

    name: str
    episodes: int
    logged: Float[np.ndarray, " outcome"]
    predicted: Float[np.ndarray, " outcome"]


def replayed_controllers(
    plants: LearnedPlants, dataset: Dataset, controllers: Mapping[str, Policy]
) -> tuple[ReplayedController, ...]:
    """The known controllers of the log, each replayed in the judging episodes that it recorded."""
    names = [
        name
        for behaviour in behaviours_of(dataset)
        for name in (behaviour, imitation_name(behaviour))
        if name in controllers
    ]
    starts = np.unique(plants.rows.start)
    judges = np.searchsorted(starts, plants.evaluation_starts)
    sums = np.add.reduceat(plants.rows.outcome.astype(np.float64), starts)
    logged = sums[judges]
    results = []
    for name in names:
        episodes = np.flatnonzero(own_episodes(dataset, name)[judges])
        if not len(episodes):
            continue
        # All episodes in one call, so that one program serves controllers of one kind.
        predicted = replayed(plants.evaluation_plant, controllers[name])
        outcomes = np.concatenate([predicted.returns[..., None], predicted.cost_sum], axis=-1)
        mean = outcomes[:-1, episodes].mean(axis=(0, 1))  # of the networks, without the linear part
        results.append(ReplayedController(name, len(episodes), logged[episodes].mean(axis=0), mean))
    return tuple(results)


def log_modes(dataset: Dataset, controllers: Mapping[str, Policy]) -> tuple[Mode, ...]:
    """The controllers that recorded a log, as far as they are known."""
    if dataset.behaviour is None:
        return ()
    recorded_by = np.asarray(dataset.behaviour)
    return tuple(
        Mode(name, controllers[name], recorded_by == index)
        for index, behaviour in enumerate(dataset.attributes.get("behaviours", ()))
        for name in (behaviour, imitation_name(behaviour))
        if name in controllers
    )


def why_no_mode(modes: Sequence[Mode], most: int) -> str:
    """Why no mode was left out of the fit, if none was."""
    if most == 0:
        return "no mode was left out of the fit, as requested"
    if not modes:
        return "the log does not say which known controllers recorded it"
    if len(modes) == 1:
        return f"of the controllers that recorded the log, {modes[0].name} alone is known"
    return "fewer than two controllers of the log have enough episodes to be left out of the fit"


def incumbent_replay(
    plants: LearnedPlants,
    policy: Policy,
    own: Sequence[Mode],
    seed: int,
    facts: PlantFacts,
    settings: RetuneSettings,
) -> OwnReplay:
    """The controller that runs today in its held-out episodes, or in all if they are not known."""
    for mode in own:
        with contextlib.suppress(InputError):  # it recorded too few episodes
            return own_replay(plants, mode, seed, facts, settings)
    return evaluation_replay(plants, policy)


def replay_checks(
    returns: OwnReturns, replay: OwnReplay, name: str, plants: LearnedPlants, unit: str
) -> list[Check]:
    """The checks *model* of the controller that runs today: its return and each of its costs."""
    of_return = ReplayCheck(name, returns.predicted, returns.logged, plants.scale, unit)
    spec = plants.model.spec
    spread = logged_outcomes(plants.rows, spec).std(axis=0)
    of_costs = [
        check
        for j, channel in enumerate(spec.cost, start=1)
        for check in cost_checks(replay, j, channel, float(spread[j]), name)
    ]
    return [Check("model", of_return.holds, of_return.sentence), *of_costs]


def cost_checks(
    replay: OwnReplay, column: int, channel: CostChannel, spread: float, name: str
) -> list[Check]:
    """Whether the model reproduces one cost of the controller that runs today.

    The mean may be lower than logged by a quarter of the spread between episodes, as far as the
    return may differ. A mean that is higher by more is a warning, because it makes the choice more
    careful. A mean says little of a cost of rare peaks, so a warning compares the share of episodes
    over the limit with the exact interval of the logged share, widened by the increase that the
    rule of the choice tolerates. It does not decide, because operators cause such peaks and are not
    replayed.

    ``spread`` is the standard deviation of this cost between the episodes of the log.
    """
    predicted, logged = replay.predicted[..., column], replay.logged[:, column]
    means = float(predicted.mean()), float(logged.mean())
    recorded = replay.all_logged[:, column] > channel.limit
    share = float(np.mean(predicted > channel.limit))
    (over_limit,) = fraction_estimates(recorded[:, None], level=DEFAULT_LEVEL)
    low, high = over_limit.low, over_limit.high
    usual = bool(low - RULE.over <= share <= high + RULE.over)
    # A cost that is the same in all episodes has no spread; the tolerance of the rule is used then,
    # and with a limit of zero the share of episodes with a cost.
    allowed = MAX_REPLAY_ERROR * spread or RULE.rise * channel.limit
    near = bool(abs(means[0] - means[1]) <= allowed) or (allowed == 0 and usual)
    too_high = means[0] > means[1] + allowed
    text = (
        f"the model predicts a mean {limit_kind(channel.per).quantity} of {number(means[0])} for "
        f"{name} and the log shows {quantity(means[1], channel.unit)}"
    )
    if allowed:
        relation = "is within" if near else "exceeds"
        text += (
            f"; the difference {relation} the allowed {quantity(allowed, channel.unit)}"
            f"{narrowly(means[0] - means[1], allowed)}"
        )
    over = (
        f"the model predicts that {percent(share)} of the episodes of {name} are over the limit, "
        f"and the log shows {percent(float(recorded.mean()))} ({percent(low)} to {percent(high)})"
    )
    return [
        Check(f"model, {channel.name}", near, text, decides=not (too_high and not near)),
        Check(f"model, {channel.name} over its limit", usual, over, decides=False),
    ]


def mode_checks(
    left_out: Sequence[HeldOutMode], spec: Spec, unit: str, why_none: str = ""
) -> list[Check]:
    """The check *held-out mode*, and a warning for every cost that is predicted badly."""
    judging = judging_modes(left_out, RULE)
    if not judging:
        text = "; ".join(_says_nothing(one, unit) for one in left_out) or why_none
        text += "; how much the model errs for a controller that recorded nothing is not known"
        return [Check(TITLE, False, text, decides=False)]
    worst = judging[0]
    holds = worst.share <= RULE.held_out
    text = (
        f"a model fitted without the episodes of {worst.name} predicts for it a return of "
        f"{number(float(worst.predicted[0]))} where the log shows "
        f"{quantity(float(worst.outcome.expected[0]), unit)} without the operators; beyond chance "
        f"({number(SURE * float(worst.chance[0]))}) the error is {percent(worst.share)} of the "
        f"difference between the controllers, {'within' if holds else 'which exceeds'} the "
        f"allowed {percent(RULE.held_out)}{narrowly(worst.share, RULE.held_out)}"
    )
    if not np.isfinite(worst.predicted[0]):
        text = f"a model fitted without the episodes of {worst.name} diverges when it acts"
    return [Check(TITLE, holds, text), *_cost_warnings(judging, spec)]


def _says_nothing(one: HeldOutMode, unit: str) -> str:
    """Why the error of a mode that was left out does not count."""
    if one.is_refused(RULE):
        return (
            f"{one.name} leaves the data of the other controllers by {number(one.outside)} "
            "standard deviations per step, so a model fitted without its episodes would refuse it "
            f"as a candidate (allowed are {number(RULE.farthest(one.outside_incumbent))})"
        )
    return (
        f"the returns of the controllers differ by {quantity(float(one.spread[0]), unit)}, too "
        f"little beside what chance explains for {one.name}, {number(SURE * float(one.chance[0]))}"
    )


def _cost_warnings(judging: Sequence[HeldOutMode], spec: Spec) -> list[Check]:
    """Costs of modes that were left out and whose error exceeds the tolerance of the rule."""
    checks = []
    for j, channel in enumerate(spec.cost, start=1):
        worst = max(judging, key=lambda one: float(one.sure_error[j]))
        allowed = max(RULE.held_out * float(worst.spread[j]), RULE.rise * channel.limit)
        if worst.sure_error[j] > allowed:
            text = (
                f"without the episodes of {worst.name} its mean is "
                f"{number(float(worst.predicted[j]))} as predicted and "
                f"{quantity(float(worst.outcome.expected[j]), channel.unit)} as the log shows; "
                f"beyond chance, {number(allowed)} is allowed"
            )
            checks.append(Check(f"{TITLE}, {channel.name}", False, text, decides=False))
    return checks
