"""The plant models of a log: one to search in, one to judge with."""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from neorl_agents.models import (
    HistoryModel,
    HistoryModelSettings,
    LogRows,
    ReplayedPlant,
    fit_history_model,
    log_rows,
    replayed_plant,
)
from neorl_agents.retuning._choice import (
    SURE,
    ChoiceRule,
    Prediction,
    Refusal,
    predictions,
    replayed,
)
from neorl_agents.retuning._excitation import Excitation, excitation
from neorl_agents.retuning._residual import ResidualSettings
from neorl_agents.retuning._search import SearchSettings
from neorl_core import InputError, Policy, Spec, Transition

# The error of a plant model where the log shows the truth.


DEFAULT_RULE = ChoiceRule()


class OtherController(NamedTuple):
    """Another controller that recorded a part of the log.

    Attributes:
        policy: The controller.
        recorded: Whether it and its operators recorded each evaluation episode, shape
            ``(episode,)``.
    """

    policy: Policy
    recorded: Bool[np.ndarray, " episode"]


class IncumbentEpisodes(NamedTuple):
    """Logged episodes of the incumbent, and of the other controllers of the log.

    Attributes:
        logged: Logged return of every evaluation episode, shape ``(episode,)``.
        by_incumbent: Whether the incumbent and its operators recorded the episode, shape
            ``(episode,)``.
        others: The other controllers; empty if they are not known.
    """

    logged: Float[np.ndarray, " episode"]
    by_incumbent: Bool[np.ndarray, " episode"]
    others: tuple[OtherController, ...] = ()


class ModeOutcome(NamedTuple):
    """Mean return and costs of a mode, without its operators, as the log shows them.

    Attributes:
        logged: Mean of its logged episodes, shape ``(1 + cost,)``: the return, then of every cost
            the quantity that its limit bounds.
        expected: The same if the controller alone acts: its replay in its own held-out episodes, in
            a model that was fitted to others of its episodes. Where no operator intervenes, this
            replay repeats the log.
        error: One standard error of ``expected``.
        episodes: Number of its logged episodes.
        replayed: Number of its episodes that were replayed.
    """

    logged: Float[np.ndarray, " outcome"]
    expected: Float[np.ndarray, " outcome"]
    error: Float[np.ndarray, " outcome"]
    episodes: int
    replayed: int


class HeldOutMode(NamedTuple):
    """A mode as a model predicts it that was fitted without its episodes.

    Attributes:
        name: Name of the controller.
        outcome: What the log shows of it.
        predicted: Mean return and costs that the model predicts, shape ``(1 + cost,)``.
        chance: One standard error of ``predicted - outcome.expected``: the draw of the episodes.
        spread: Largest minus smallest expected mean of all modes, shape ``(1 + cost,)``.
        episodes: Number of episodes of the other modes in which it was replayed.
        outside: Mean distance from the data of the others, in standard deviations per step.
        outside_incumbent: The same of the controller that runs today; zero if it is not known.
    """

    name: str
    outcome: ModeOutcome
    predicted: Float[np.ndarray, " outcome"]
    chance: Float[np.ndarray, " outcome"]
    spread: Float[np.ndarray, " outcome"]
    episodes: int
    outside: float
    outside_incumbent: float = 0.0

    @property
    def error(self) -> Float[np.ndarray, " outcome"]:
        """Distance of the prediction from what the log shows; infinite if it diverged."""
        distance = np.abs(self.predicted - self.outcome.expected)
        return np.where(np.isfinite(distance), distance, np.inf)

    @property
    def sure_error(self) -> Float[np.ndarray, " outcome"]:
        """The error less 1.96 standard errors, which the draw of the episodes explains."""
        return np.maximum(self.error - SURE * self.chance, 0.0)

    @property
    def share(self) -> float:
        """``sure_error`` of the return, as a fraction of the difference between the modes."""
        return float(self.sure_error[0] / self.spread[0]) if self.spread[0] > 0 else math.inf

    def is_refused(self, rule: ChoiceRule) -> bool:
        """Whether it leaves the data so far that the rule would not choose it, if it were new."""
        return self.outside > rule.farthest(self.outside_incumbent)

    def is_uncertain(self, rule: ChoiceRule) -> bool:
        """Whether a forbidden error would not be noticed, and none is sure."""
        noticed = self.chance[0] <= rule.held_out * self.spread[0]
        return not (noticed or self.share > rule.held_out)


def judging_modes(
    held_out: Sequence[HeldOutMode], rule: ChoiceRule = DEFAULT_RULE
) -> tuple[HeldOutMode, ...]:
    """The modes whose error counts against the model, the largest share first.

    A prediction that the rule refuses anyway, because the mode leaves the data of the others, is
    never used. Where the modes differ little beside chance, only a sure error counts.

    Args:
        held_out: Modes that were left out of the fit.
        rule: Conditions for preferring a candidate.
    """
    telling = [one for one in held_out if not (one.is_refused(rule) or one.is_uncertain(rule))]
    return tuple(sorted(telling, key=lambda one: -one.share))


def model_error(
    returns: Float[np.ndarray, "member episode"],
    others: Sequence[Float[np.ndarray, "member episode"]],
    log: IncumbentEpisodes,
) -> float:
    """Error of the model on logged episodes, in the unit of the return.

    This is the largest of several errors. The first is that of the incumbent's mean return in its
    own logged episodes. The others compare, for every other controller of the log, its predicted
    gain over the incumbent in the incumbent's episodes with that in its own. In its own episodes a
    controller repeats the log; in those of the other, the model must extrapolate between them. With
    a correct model both gains agree up to chance, for which one standard error is subtracted.

    Args:
        returns: Predicted returns of the incumbent; the linear part as last member.
        others: Predicted returns of the other controllers, in the order of ``log.others``.
        log: Logged returns, and which controller recorded each episode.

    Returns:
        The error; zero if the log has no episode of the incumbent.
    """
    if not log.by_incumbent.any():
        return 0.0
    errors = [
        abs(
            float(returns[:-1, log.by_incumbent].mean())
            - float(log.logged[log.by_incumbent].mean())
        )
    ]
    for one, other_returns in zip(log.others, others, strict=True):
        groups = [
            (other_returns - returns)[:-1].mean(axis=0)[recorded]
            for recorded in (log.by_incumbent, one.recorded)
        ]
        if min(len(group) for group in groups) > 1:
            sampling_error = np.sqrt(sum(group.var(ddof=1) / len(group) for group in groups))
            errors.append(abs(float(groups[0].mean() - groups[1].mean())) - float(sampling_error))
    return max(errors)


LEAST_EPISODES = 8
"""Smallest number of episodes that can be split into a part for searching and one for judging."""
LEAD = 8
"""Steps in which a filtered derivative forgets that it did not know the rows before the cut."""
LONGEST = 16
"""Past steps that a model of running operation may read."""


@dataclasses.dataclass(frozen=True)
class PlantFacts:
    """Declarations about a plant in addition to its log.

    Attributes:
        rates: Largest change of every action per second; empty for none.
        exogenous: Observations that the controller does not influence, such as weather, demand
            or setpoints.
        interlock: Function from observation and action to the action after the interlocks.
        objective: Function from observation, action, next observation and the action before to
            reward and costs; NaN for numbers that are not declared.
        setpoints: Those of ``exogenous`` that are setpoints of the controllers that compute the
            actions and do not act on the plant by themselves.
        running: Whether the episodes of the log were cut out of running operation. The first steps
            of each (:data:`LEAD`, or a tenth of the episode) are then repeated as logged while the
            controller follows, so that it acts from the state of its action in force. Such a log is
            one of feedback and noise: of histories of up to :data:`LONGEST` steps the longest that
            predicts as well as the best is taken.
    """

    rates: tuple[float, ...] = ()
    exogenous: tuple[str, ...] = ()
    interlock: Any = None
    objective: Any = None
    setpoints: tuple[str, ...] = ()
    running: bool = False


@dataclasses.dataclass(frozen=True)
class RetuneSettings:
    """Settings for retuning a controller.

    Attributes:
        model: Settings for fitting the plant model.
        search: Settings of the search over parameters.
        rule: Conditions for preferring a candidate.
        held_out_fraction: Fraction of the episodes that neither the model nor the search uses.
        evaluation_episodes: Largest number of them that are replayed to evaluate candidates.
        steps: Steps of the episodes that the search may use, at least those of 60 episodes.
        regularisations: Weights of the squared distance from today's parameters; one search for
            each.
        fractions: Fractions of the way from today's parameters to those that a search ends with;
            each is a candidate.
        residual: Settings for training a network on top of a controller.
        authorities: Fractions of the network's authority; each is a candidate.
        network_contradiction: :attr:`ChoiceRule.contradiction` for networks.
        network_trust: :attr:`ChoiceRule.trust` for networks.
    """

    model: HistoryModelSettings = dataclasses.field(default_factory=HistoryModelSettings)
    search: SearchSettings = dataclasses.field(default_factory=SearchSettings)
    rule: ChoiceRule = dataclasses.field(default_factory=ChoiceRule)
    held_out_fraction: float = 0.25
    evaluation_episodes: int = 40
    steps: int = 20_000
    regularisations: tuple[float, ...] = (0.01, 0.1)
    fractions: tuple[float, ...] = (1.0, 0.5, 0.25, 0.125, 0.0625)
    residual: ResidualSettings = dataclasses.field(default_factory=ResidualSettings)
    authorities: tuple[float, ...] = (1.0, 0.5, 0.25, 0.125)
    network_contradiction: float = 0.05
    network_trust: float = 1.0


NO_FACTS = PlantFacts()
DEFAULT_SETTINGS = RetuneSettings()


class LearnedPlants(NamedTuple):
    """The two learned plants of a log, and its scale.

    Attributes:
        search_plant: Plant that replays episodes that the model was fitted to.
        evaluation_plant: Plant that replays other episodes.
        scale: Spread of returns in the log, the unit of gains.
        rows: The log.
        logged: Logged returns of the evaluation episodes, shape ``(episode,)``.
        by_incumbent: Whether the incumbent recorded each of them, shape ``(episode,)``; ``None``
            if that is not known.
        evaluation_starts: First rows of the evaluation episodes, shape ``(episode,)``.
        n_fitted: Number of episodes that the model was fitted to.
        excitation: How freely the actions of the log moved.
        error: The model's error on logged episodes; zero if it is not known
            (:meth:`with_model_error`).
        held_out: Controllers of the log as models predict them that were fitted without their
            episodes (:func:`held_out_modes`); empty if this was not examined.
    """

    search_plant: ReplayedPlant
    evaluation_plant: ReplayedPlant
    scale: float
    rows: LogRows
    logged: Float[np.ndarray, " episode"]
    by_incumbent: Bool[np.ndarray, " episode"] | None
    evaluation_starts: Int[np.ndarray, " episode"]
    n_fitted: int
    excitation: Excitation
    error: float = 0.0
    held_out: tuple[HeldOutMode, ...] = ()

    @property
    def model(self) -> HistoryModel:
        """The model of both plants."""
        return self.evaluation_plant.model

    def with_model_error(
        self, incumbent: Policy, others: Sequence[OtherController] = ()
    ) -> "LearnedPlants":
        """The same plants with their error in the episodes that incumbent and others recorded.

        Args:
            incumbent: Controller that runs today, which recorded the episodes of ``by_incumbent``.
            others: Other controllers that recorded parts of the log.

        Returns:
            The plants; unchanged if it is not known who recorded the log.
        """
        if self.by_incumbent is None:
            return self
        returns = [
            np.asarray(replayed(self.evaluation_plant, policy).returns)
            for policy in (incumbent, *(one.policy for one in others))
        ]
        log = IncumbentEpisodes(self.logged, self.by_incumbent, tuple(others))
        return self._replace(error=model_error(returns[0], returns[1:], log))


def learned_plants(
    log: Transition,
    spec: Spec,
    seed: int,
    facts: PlantFacts = NO_FACTS,
    settings: RetuneSettings = DEFAULT_SETTINGS,
    *,
    by_incumbent: Bool[np.ndarray, " episode"] | None = None,
) -> LearnedPlants:
    """Fits a model to three quarters of a log and replays the log in two parts.

    Args:
        log: Flat columns in physical units; rows of one episode follow one another.
        spec: Channels, and the limits in force.
        seed: Seed of the split and the fit.
        facts: Declarations about the plant.
        settings: Settings of the model.
        by_incumbent: Whether the incumbent recorded each episode of the log; not known by default.

    Raises:
        InputError: If the log has too few episodes or lacks a column, or a name is not a channel.
    """
    return plants_of_rows(log_rows(log, spec), spec, seed, facts, settings, by_incumbent)


def plants_of_rows(
    rows: LogRows,
    spec: Spec,
    seed: int,
    facts: PlantFacts,
    settings: RetuneSettings,
    by_incumbent: Bool[np.ndarray, " episode"] | None = None,
) -> LearnedPlants:
    """:func:`learned_plants` of rows that were read already."""
    starts = np.unique(rows.start)
    _require_episodes(len(starts), by_incumbent)
    held_out, fitted = split_episodes(starts, seed, settings.held_out_fraction)
    fit_rows = rows_of(rows, np.sort(fitted))
    of_model = model_settings(settings.model, facts)
    model = fit_history_model(
        fit_rows, spec, jax.random.key(seed), exogenous=facts.exogenous, settings=of_model
    )
    returns = np.add.reduceat(rows.outcome[:, 0].astype(np.float64), starts)
    evaluation_starts = held_out[: settings.evaluation_episodes]
    scale = float(returns.std()) or 1.0
    n_search = max(60, settings.steps // spec.horizon)
    return LearnedPlants(
        replay_of(model, rows, fitted[:n_search], facts),
        replay_of(model, rows, evaluation_starts, facts),
        scale,
        rows,
        returns[np.searchsorted(starts, evaluation_starts)],
        None
        if by_incumbent is None
        else np.asarray(by_incumbent, bool)[np.searchsorted(starts, evaluation_starts)],
        evaluation_starts,
        len(fitted),
        excitation(rows, spec, model.history, model=model, setpoints=_read_setpoints(model, facts)),
    )


def model_settings(settings: HistoryModelSettings, facts: PlantFacts) -> HistoryModelSettings:
    """Settings of the model of a log: for running operation, with longer histories to choose from.

    Args:
        settings: Settings of a model; a single history is kept as it is.
        facts: Declarations about the plant.
    """
    if not facts.running or len(settings.history) == 1:
        return settings
    histories = tuple(dict.fromkeys((*settings.history, LONGEST)))
    return dataclasses.replace(settings, history=histories, longest=True)


def split_episodes(
    starts: Int[np.ndarray, " episode"], seed: int, held_out_fraction: float
) -> tuple[Int[np.ndarray, " held_out"], Int[np.ndarray, " fitted"]]:
    """First rows of the episodes that are held out, and of those that the model is fitted to.

    At least two are held out.
    """
    shuffled = np.random.default_rng(seed).permutation(starts)
    count = max(2, round(held_out_fraction * len(starts)))
    return shuffled[:count], shuffled[count:]


def replay_of(
    model: HistoryModel, rows: LogRows, episodes: Int[np.ndarray, " episode"], facts: PlantFacts
) -> ReplayedPlant:
    """The plant of a model that replays some episodes of a log."""
    starts, spec = np.unique(rows.start), model.spec
    horizon = min(spec.horizon, int(np.diff(np.append(starts, len(rows.start))).max()))
    return replayed_plant(
        model,
        rows,
        episodes,
        rates=np.asarray(facts.rates) * spec.dt if facts.rates else None,
        interlock=facts.interlock,
        objective=facts.objective,
        horizon=horizon,
        lead=min(LEAD, max(1, horizon // 10)) if facts.running else 0,
    )


def _read_setpoints(model: HistoryModel, facts: PlantFacts) -> tuple[str, ...]:
    """The setpoints that the model takes from the log."""
    names = {c.name for i, c in enumerate(model.spec.obs) if i not in model.predicted}
    return tuple(name for name in facts.setpoints if name in names)


def _require_episodes(count: int, by_incumbent: Any) -> None:
    if count < LEAST_EPISODES:
        raise InputError(
            f"the log has {count} episodes; a plant model needs at least {LEAST_EPISODES}, "
            "because some are held out to evaluate the candidates: record more episodes, or split "
            "long ones"
        )
    if by_incumbent is not None and len(by_incumbent) != count:
        raise InputError(
            f"by_incumbent has {len(by_incumbent)} entries, but the log has {count} episodes; give "
            "one for each episode"
        )


def evaluate_candidates(
    plants: LearnedPlants,
    policies: Mapping[str, Policy],
    incumbent: str,
    rule: ChoiceRule,
    logged: Collection[str] = (),
    searched: Collection[str] = (),
) -> tuple[Prediction, ...]:
    """Compares every policy with the incumbent, on the evaluation episodes."""
    judging = judging_modes(plants.held_out, rule)
    errors = (plants.error, *(float(one.sure_error[0]) for one in judging))
    table = predictions(
        plants.evaluation_plant, policies, incumbent, plants.scale, rule, error=max(errors),
        logged=logged, searched=searched,
    )  # fmt: skip
    warnings = tuple(
        Refusal("excitation", f"the log does not show what the candidate would do: {warning}")
        for warning in plants.excitation.warnings
    )
    if judging and judging[0].share > rule.held_out:
        reason = (
            f"a model fitted without the episodes of {judging[0].name} mispredicts its return by "
            f"{judging[0].share:.0%} of the difference between the controllers of the log, which "
            f"is more than {rule.held_out:.0%}, so the model may not be used"
        )
        warnings += (Refusal("error", reason),)
    return tuple(
        one
        if one.name == incumbent
        else dataclasses.replace(one, refused_by=(*one.refused_by, *warnings))
        for one in table
    )


def rows_of(rows: LogRows, starts: Float[np.ndarray, " episode"]) -> LogRows:
    """The rows of some episodes, renumbered."""
    is_kept = np.isin(rows.start, starts)
    new_index = np.cumsum(is_kept) - 1
    fit_rows = LogRows(*(column[is_kept] for column in rows))
    return fit_rows._replace(start=new_index[fit_rows.start].astype(np.int32))
