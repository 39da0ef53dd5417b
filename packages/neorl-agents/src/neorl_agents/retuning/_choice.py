"""Predicted results of policies without the plant, and the choice among them."""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, stdtrit

from neorl_agents.models import (
    PredictedEpisodes,
    ReplayedPlant,
    every_start,
    predicted_episodes,
)
from neorl_core import Policy, Spec
from neorl_core.infrastructure import factorises

AT_ONCE = 2
"""Policies that are simulated at the same time."""
SURE = 1.96
"""Standard errors in a wide interval, or by which an error is reduced before it counts."""


@dataclasses.dataclass(frozen=True)
class ChoiceRule:
    """Conditions under which a predicted policy may be preferred to the incumbent.

    The numbers were chosen on one log of each built-in plant and checked on others.

    Attributes:
        z: Number of standard errors between many episodes that are subtracted from a predicted
            gain; of few episodes more are (:func:`half_width`).
        least_gain: Smallest lower bound of the gain, as a fraction of the spread of logged returns.
        over: Largest increase of the fraction of episodes over a limit, relative to the incumbent.
        rise: Largest increase of a mean cost over the incumbent's, as a fraction of its limit.
        outside: Factor on the incumbent's distance from the data of the log.
        slack: Distance allowed beyond that, in standard deviations per step.
        extrapolation_penalty: Penalty on a predicted gain for leaving the log farther than that, in
            spreads of returns per standard deviation per step. With the usual 20, a policy that is
            outside by a twentieth of a standard deviation in the mean step has lost the whole
            spread, and is refused. An infinite penalty refuses every policy that leaves the log
            farther.
        contradiction: Largest loss that the linear part may predict, as a fraction of the predicted
            gain.
        trust: Smallest predicted gain, as a fraction of the model's error on logged episodes
            (:func:`model_error`).
        held_out: Largest error of the predicted return of a mode that was left out of the fit,
            beyond chance (1.96 standard errors), as a fraction of the difference between the modes
            (:func:`judging_modes`). A model with a larger one is not used.
        near: Fraction of a limit above which an episode counts as over it, because rare peaks are
            predicted too low.
        together: Largest peak sensitivity of a loop while all loops of a bank are closed, unless
            today's bank has a larger one. It is wider than the 2 of a loop alone, as it refuses
            what rings: 2.3 gained what was predicted on a column, 6 rang on four tanks. Of running
            operation alone, whose plant is linear enough.
    """

    z: float = 1.96
    least_gain: float = 0.01
    over: float = 0.03
    rise: float = 0.01
    outside: float = 1.25
    slack: float = 1e-4
    extrapolation_penalty: float = 20.0
    contradiction: float = 0.5
    trust: float = 0.2
    held_out: float = 0.1
    near: float = 0.8
    together: float = 2.5

    def farthest(self, incumbent: float) -> float:
        """Distance from the log's data that is not penalised, in standard deviations per step.

        Args:
            incumbent: Distance of the incumbent.
        """
        return self.outside * incumbent + self.slack + 1 / self.extrapolation_penalty

    def penalty(self, outside: float, incumbent: float, scale: float) -> float:
        """Penalty on a predicted gain for leaving the log's data, in the unit of the return.

        With an infinite ``extrapolation_penalty`` it is zero, because such a policy is refused; its
        bound then stays finite.

        Args:
            outside: Distance of the policy, in standard deviations per step.
            incumbent: Distance of the incumbent.
            scale: Spread of returns in the log.
        """
        excess = outside - self.outside * incumbent - self.slack
        if excess <= 0 or math.isinf(self.extrapolation_penalty):
            return 0.0
        return self.extrapolation_penalty * scale * excess


class Refusal(NamedTuple):
    """One reason why a candidate may not be preferred.

    Attributes:
        subject: What it is about: ``"return"`` is the lower bound of the predicted gain,
            ``"costs"`` the share of episodes near a limit or a mean cost, both compared with the
            incumbent's, ``"error"`` the error of the model on logged episodes, ``"agreement"``
            another estimator than the networks, ``"support"`` the distance from the data of the
            log, ``"excitation"`` what the log does not show, ``"divergence"`` a rollout that
            diverges, ``"way"`` a predicted loss on the way to the candidate, and ``"together"``
            loops that would ring when all of them are closed.
        sentence: The reason with its numbers.
    """

    subject: Literal[
        "return", "costs", "error", "agreement", "support", "excitation", "divergence", "way",
        "together",
    ]  # fmt: skip
    sentence: str


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Predicted results of one policy, compared with the incumbent on the same episodes.

    Attributes:
        name: Name of the policy.
        returns: Mean return in the model.
        gain: Mean paired difference of returns over episodes and networks.
        low: ``gain`` minus the standard errors between episodes, the standard deviation between
            networks, and the penalty for leaving the log's data.
        by_member: Mean difference in each network, then in the linear part.
        cost: Mean of the quantity that each limit bounds: the sum or the worst step of an episode.
        cost_high: The same plus standard errors and the standard deviation between networks.
        cost_incumbent: The incumbent's ``cost``.
        over: Fraction of episodes over each limit, or over :attr:`ChoiceRule.near` of it.
        over_incumbent: The incumbent's ``over``.
        outside: Mean distance from the log's data, in standard deviations per step.
        outside_incumbent: The incumbent's ``outside``.
        episodes: Number of logged episodes that were replayed.
        refused_by: Reasons why it may not be preferred; empty if it may.
        returns_reach: Half of the width of the interval of ``returns``: the standard errors between
            episodes plus the standard deviation between networks; infinite if it is not known.
        error: Error of the model on logged episodes, from :func:`model_error`; zero if it is not
            known.
    """

    name: str
    returns: float
    gain: float
    low: float
    by_member: tuple[float, ...]
    cost: tuple[float, ...]
    cost_high: tuple[float, ...]
    cost_incumbent: tuple[float, ...]
    over: tuple[float, ...]
    over_incumbent: tuple[float, ...]
    outside: float
    outside_incumbent: float
    episodes: int
    refused_by: tuple[Refusal, ...] = ()
    returns_reach: float = math.inf
    error: float = 0.0

    @property
    def refusals(self) -> tuple[str, ...]:
        """The reasons why it may not be preferred, in sentences."""
        return tuple(refusal.sentence for refusal in self.refused_by)

    @property
    def high(self) -> float:
        """The other end of the interval of the gain: as far above ``gain`` as ``low`` is below."""
        return 2 * self.gain - self.low

    @property
    def true_gain(self) -> tuple[float, float]:
        """Ends of an interval for the true gain, in which :attr:`error` is one standard error.

        ``low`` and ``high`` tell what the networks of one model agree on, not how wrong they are
        together. The choice does not use these wider ends.
        """
        half = math.hypot(self.gain - self.low, SURE * self.error)
        return self.gain - half, self.gain + half


def predictions(
    plant: ReplayedPlant,
    policies: Mapping[str, Policy],
    incumbent: str,
    scale: float,
    rule: ChoiceRule = ChoiceRule(),
    *,
    error: float = 0.0,
    logged: Collection[str] = (),
    searched: Collection[str] = (),
) -> tuple[Prediction, ...]:
    """Compares every policy with the incumbent, on all episodes and members of a learned plant.

    Args:
        plant: Learned plant, of episodes that neither the model nor a search has used.
        policies: Policies in physical units by name.
        incumbent: Name of the policy that runs today.
        scale: Spread of returns in the log.
        rule: Conditions for preferring a policy.
        error: The model's error on logged episodes, from :func:`model_error`; zero if it is not
            known.
        logged: Policies that recorded a part of the log themselves, so the log covers their data.
        searched: Policies that were searched in this model. They may not leave the log for any
            predicted gain, because a search ends where the model is most wrong.

    Returns:
        One prediction per policy, in their order.

    Raises:
        KeyError: If the incumbent is not one of them.
    """
    episodes = _replay_each(plant, policies)
    incumbent_episodes = episodes[incumbent]
    searched_rule = dataclasses.replace(rule, extrapolation_penalty=math.inf)
    table = tuple(
        _prediction(
            name, episodes[name], incumbent_episodes, plant.spec, scale,
            searched_rule if name in searched else rule, name == incumbent, name in logged,
        )
        for name in policies
    )  # fmt: skip
    return tuple(
        one
        if one.name == incumbent
        else _refuse_within_error(dataclasses.replace(one, error=error), error, rule)
        for one in table
    )


def _replay_each(
    plant: ReplayedPlant, policies: Mapping[str, Policy]
) -> dict[str, PredictedEpisodes]:
    """Simulates every policy, two at a time, since a program of episodes uses one core.

    The first policy of each structure is alone, because the others use the program that is compiled
    for it. Programs that factorise matrices run in turn.
    """
    first = {jax.tree.structure(policy): name for name, policy in [*policies.items()][::-1]}
    episodes = {name: replayed(plant, policies[name]) for name in first.values()}
    rest = [name for name in policies if name not in episodes]
    in_turn = any(replay_factorises(plant, policies[name]) for name in first.values())
    with ThreadPoolExecutor(1 if in_turn else AT_ONCE) as threads:
        results = threads.map(lambda name: replayed(plant, policies[name]), rest)
        return episodes | dict(zip(rest, results, strict=True))


def replay_factorises(plant: ReplayedPlant, policy: Policy) -> bool:
    """Whether the program that simulates a policy in a learned plant factorises matrices."""
    starts = every_start(plant, range(plant.members), range(plant.n_episodes))
    return factorises(jax.make_jaxpr(_predicted)(plant, policy, starts))


def replayed(plant: ReplayedPlant, policy: Policy) -> PredictedEpisodes:
    """Simulates a policy in every member and every episode of a learned plant.

    Args:
        plant: Learned plant.
        policy: Policy in physical units that ignores its key.

    Returns:
        Host arrays with leading axes ``(member, episode)``, the linear part as last member.
    """
    starts = every_start(plant, range(plant.members), range(plant.n_episodes))
    flat: Any = jax.device_get(_predicted(plant, policy, starts))
    shape = (plant.members, plant.n_episodes)
    return jax.tree.map(lambda x: np.asarray(x).reshape(*shape, *x.shape[1:]), flat)


def choose(table: Sequence[Prediction], incumbent: str) -> str:
    """The policy with the largest lower bound among those that are not refused.

    Args:
        table: Predictions.
        incumbent: Name of the policy that runs today.

    Returns:
        Its name; the incumbent's if all others are refused.

    Example:
        >>> choose((), "PID")
        'PID'
    """
    allowed = [one for one in table if one.name != incumbent and not one.refused_by]
    return max(allowed, key=lambda one: one.low).name if allowed else incumbent


_predicted = jax.jit(predicted_episodes)


def bounded_costs(
    episodes: PredictedEpisodes, spec: Spec
) -> Float[np.ndarray, "member episode cost"]:
    """The quantity of every cost that its limit bounds: the sum or the worst step of an episode."""
    of_step = np.asarray([c.per == "step" for c in spec.cost], bool)
    return np.where(of_step, episodes.cost_worst, episodes.cost_sum)


def _prediction(
    name: str,
    candidate_episodes: PredictedEpisodes,
    incumbent_episodes: PredictedEpisodes,
    spec: Spec,
    scale: float,
    rule: ChoiceRule,
    is_incumbent: bool,
    in_log: bool,
) -> Prediction:
    with np.errstate(invalid="ignore"):
        difference = np.nan_to_num(
            np.asarray(candidate_episodes.returns - incumbent_episodes.returns, np.float64),
            nan=-1e30,
        )
    networks = difference[:-1]
    gain = float(networks.mean())
    outside = [float(np.mean(one.outside[:-1])) for one in (candidate_episodes, incumbent_episodes)]
    low = gain - float(half_width(networks, rule.z))
    low -= 0.0 if in_log else rule.penalty(outside[0], outside[1], scale)
    limits = rule.near * np.asarray([c.limit for c in spec.cost])
    costs = [bounded_costs(one, spec)[:-1] for one in (candidate_episodes, incumbent_episodes)]
    over = [np.mean(cost > limits, axis=(0, 1)) for cost in costs]
    prediction = Prediction(
        name=name,
        returns=float(np.mean(candidate_episodes.returns[:-1])),
        gain=gain,
        low=low,
        by_member=tuple(float(x) for x in difference.mean(axis=1)),
        cost=tuple(float(x) for x in costs[0].mean(axis=(0, 1))),
        cost_high=tuple(
            float(x) for x in costs[0].mean(axis=(0, 1)) + half_width(costs[0], rule.z)
        ),
        cost_incumbent=tuple(float(x) for x in costs[1].mean(axis=(0, 1))),
        over=tuple(float(x) for x in over[0]),
        over_incumbent=tuple(float(x) for x in over[1]),
        outside=outside[0],
        outside_incumbent=outside[1],
        episodes=networks.shape[1],
        returns_reach=_returns_reach(candidate_episodes, rule.z),
    )
    if is_incumbent:
        return prediction
    refusals = _refusals(prediction, spec, scale, rule)
    if not in_log and outside[0] > rule.farthest(outside[1]):
        sentence = (
            f"it is {outside[0]:.3g} standard deviations per step away from the data of the log, "
            f"today's controller {outside[1]:.3g}"
        )
        refusals.append(Refusal("support", sentence))
    return dataclasses.replace(prediction, refused_by=tuple(refusals))


def _refuse_within_error(one: Prediction, error: float, rule: ChoiceRule) -> Prediction:
    """Refuses a gain that is small compared with the model's error on logged episodes."""
    if error == 0 or one.gain >= rule.trust * error:
        return one
    reason = (
        f"its predicted gain, {one.gain:.4g}, is less than {rule.trust:.0%} of the model's error "
        f"on logged episodes, {error:.4g}"
    )
    return dataclasses.replace(one, refused_by=(*one.refused_by, Refusal("error", reason)))


def half_width(
    values: Float[np.ndarray, "member episode *quantity"], z: float
) -> Float[np.ndarray, "*quantity"]:
    """Half of the width of the interval of a predicted mean.

    The standard error of a few episodes is itself an estimate, so Student's distribution takes the
    place of the normal one: at 1.96, two episodes count 12.7 standard errors, 40 count 2.02.

    Args:
        values: What each network predicts for each episode.
        z: Number of standard errors between many episodes.

    Returns:
        The standard errors of these episodes at the level of ``z`` plus the standard deviation
        between the means of the networks; infinite for a single episode.
    """
    episodes = values.shape[1]
    if episodes < 2:
        return np.full(values.shape[2:], np.inf)
    error = values.mean(axis=0).std(axis=0, ddof=1) / np.sqrt(episodes)
    factor = float(stdtrit(episodes - 1, ndtr(z)))
    return factor * error + values.mean(axis=1).std(axis=0)


def _returns_reach(episodes: PredictedEpisodes, z: float) -> float:
    networks = np.asarray(episodes.returns[:-1], np.float64)
    return float(half_width(networks, z)) if np.isfinite(networks).all() else math.inf


def _refusals(one: Prediction, spec: Spec, scale: float, rule: ChoiceRule) -> list[Refusal]:
    refusals: list[Refusal] = []
    if not np.isfinite(one.gain) or one.gain < -1e20:
        return [Refusal("divergence", "its rollouts in the model diverge")]
    if one.low <= rule.least_gain * scale:
        sentence = (
            f"the lower end of its predicted gain, {one.low:.3g}, is not above "
            f"{rule.least_gain * scale:.3g}, which is {rule.least_gain:.0%} of the spread of "
            "returns in the log"
        )
        refusals.append(Refusal("return", sentence))
    if -one.by_member[-1] > rule.contradiction * max(one.gain, 0.0):
        networks = f"but its networks predict a gain of {one.gain:.4g}"
        if one.gain <= 0:
            networks = f"and its networks predict one of {-one.gain:.4g}"
        sentence = (
            f"the linear part of the model predicts a loss of {-one.by_member[-1]:.4g}, {networks}"
        )
        refusals.append(Refusal("agreement", sentence))
    for j, channel in enumerate(spec.cost):
        if one.over[j] > one.over_incumbent[j] + rule.over:
            sentence = (
                f"{one.over[j]:.1%} of its episodes exceed {rule.near:.0%} of the limit of "
                f"{channel.name}, against {one.over_incumbent[j]:.1%} under today's controller"
            )
            refusals.append(Refusal("costs", sentence))
        if channel.limit > 0 and one.cost[j] > one.cost_incumbent[j] + rule.rise * channel.limit:
            sentence = (
                f"its mean {channel.name} rises from {one.cost_incumbent[j]:.4g} to "
                f"{one.cost[j]:.4g} {channel.unit}, by more than {rule.rise:.0%} of the limit"
            )
            refusals.append(Refusal("costs", sentence))
    return refusals
