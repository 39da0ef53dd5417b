"""Compares every candidate with the incumbent, using only the log, and chooses one."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from neorl_agents.retuning import (
    LearnedPlants,
    OtherController,
    PlantFacts,
    Prediction,
    Refusal,
    choose,
    judging_modes,
    select,
)
from neorl_core import InputError, Policy, Spec
from neorl_core.infrastructure import unknown_name
from neorl_core.statistics import rank_correlation
from neorl_envs import Dataset
from neorl_train.choosing._agreement import other_estimates, refuse_if_contradicted
from neorl_train.choosing._model_check import checks_from_actions
from neorl_train.choosing._model_trust import mode_checks, own_returns
from neorl_train.choosing._options import ChooseOptions, learn_plants
from neorl_train.choosing._predicted_movement import PredictedMovement, predicted_movement
from neorl_train.choosing._return_distribution import ReturnDistribution, return_distribution
from neorl_train.choosing._value_estimates import (
    ValueEstimates,
    logged_episodes,
    value_estimates,
)
from neorl_train.data._behaviours import behaviours_of, own_episodes
from neorl_train.data._data_warnings import log_warnings
from neorl_train.judging import OtherEstimate
from neorl_train.judging._evaluate import return_unit
from neorl_train.judging._rule import ReplayCheck
from neorl_train.judging._wording import with_ends, with_unit

MIN_AGREEMENT = 3
"""Smallest number of candidates for which the agreement of two estimators is reported."""


class CandidateEstimates(NamedTuple):
    """One candidate.

    Attributes:
        prediction: Prediction of the plant model, and reasons why it may not be preferred.
        values: Estimates from the rows of the log; ``None`` if none were requested.
        others: Its gain according to other estimators; empty if none were requested.
        distribution: Distribution of its return and the correction by neighbours, for information;
            ``None`` if none was requested.
        movement: Movement of actuators and measurements in the replayed episodes.
    """

    prediction: Prediction
    values: ValueEstimates | None
    others: tuple[OtherEstimate, ...] = ()
    distribution: ReturnDistribution | None = None
    movement: PredictedMovement | None = None


@dataclasses.dataclass(frozen=True)
class Selection:
    """The candidates of a log and the choice among them.

    Attributes:
        source: Name of the log.
        spec: Channels and limits.
        reward_unit: Unit of the reward.
        incumbent: Controller that runs today.
        chosen: The choice; the incumbent if no candidate may be preferred.
        candidates: Every candidate, the incumbent first.
        scale: Spread of returns between the episodes of the log.
        error: The model's error where the log shows the truth, in the unit of the return; zero if
            the log does not state which controller generated it.
        episodes: Number of episodes used for judging.
        agreement: Rank correlation between the model's returns and the fitted values over the
            candidates; NaN if there are too few.
        agreements: The same for every other estimator of the return by name. Candidates for which
            an estimator gives no information are left out. For information: nothing depends on it.
        discount: Discount of the values.
        value_members: Networks of each fitted Q evaluation.
        warnings: Defects of the log or the model on which no choice may rest, in sentences; with
            one of them nothing is preferred.
        predicted: Observations that the model predicts, in the order of
            :attr:`PredictedMovement.deviation`.
    """

    source: str
    spec: Spec
    reward_unit: str
    incumbent: str
    chosen: str
    candidates: tuple[CandidateEstimates, ...]
    scale: float
    error: float
    episodes: int
    agreement: float
    discount: float
    value_members: int = 1
    warnings: tuple[str, ...] = ()
    agreements: Mapping[str, float] = dataclasses.field(default_factory=dict)
    predicted: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The conclusion in one sentence."""
        if self.warnings:
            return (
                f"Keep {self.incumbent}; no choice should be based on this log: "
                f"{'; '.join(self.warnings)}."
            )
        if self.chosen == self.incumbent:
            return (
                f"Keep {self.incumbent}; from this log alone no candidate may be preferred to it."
            )
        prediction = next(c.prediction for c in self.candidates if c.prediction.name == self.chosen)
        gain = with_unit(
            with_ends(prediction.gain, prediction.low, prediction.high), self.reward_unit
        )
        return (
            f"{self.chosen} is the choice: a predicted gain in return over {self.incumbent} of "
            f"{gain}, with every predicted cost as allowed. It has not run on the plant."
        )


def select_candidates(
    dataset: Dataset,
    source: str,
    candidates: Mapping[str, Policy],
    options: ChooseOptions,
    facts: PlantFacts | None = None,
    *,
    plants: LearnedPlants | None = None,
) -> Selection:
    """Estimates every candidate from a log and chooses by :class:`ChoiceRule`.

    The choice is based on replayed episodes of a plant model that was fitted to other episodes.
    Fitted Q evaluation and importance sampling are additional: they do not rank the candidates, but
    a candidate is refused if either predicts a loss that exceeds its own error. It is also refused
    if no episode of the incumbent is known and the log shows at least its predicted return.

    Nothing is chosen if the log has a defect, if the model does not reproduce the incumbent in the
    episodes that it recorded, or, if these are not known, if the model fails a deciding check of
    :func:`neorl_train.choosing.check_plant_model`.

    Args:
        dataset: Log with rewards.
        source: Name of the log, for messages and the page.
        candidates: Deterministic policies in physical units by name; at least two.
        options: Options for estimating them.
        facts: Declared facts about the plant; none by default.
        plants: Result of :func:`learn_plants` for the same log, candidates and incumbent; learned
            here by default.

    Returns:
        All estimates and the choice.

    Raises:
        InputError: If there are fewer than two candidates, the incumbent is not one of them, or the
            log does not suffice.
    """
    options.validate()
    if len(candidates) < 2:
        raise InputError(
            f"there are {len(candidates)} candidates for {source}, and a choice needs two or more; "
            "give the directory of a run, or name artefacts with --policies"
        )
    incumbent = options.incumbent or next(iter(candidates))
    if incumbent not in candidates:
        raise unknown_name("candidate as incumbent", incumbent, list(candidates))
    order = {incumbent: candidates[incumbent], **candidates}
    if plants is None:
        plants = learn_plants(dataset, options, facts, candidates, incumbent)
    plants, in_log = _with_errors(plants, dataset, order)
    _, table = select(plants, order, incumbent, options.settings().rule, logged=in_log)
    values: list[Any] = [None] * len(table)
    others: list[tuple[OtherEstimate, ...]] = [()] * len(table)
    distributions: list[Any] = [None] * len(table)
    if options.value_updates:
        values, distributions = _values_of(dataset, [order[p.name] for p in table], plants, options)
        others = [
            other_estimates(prediction, estimates, values[0])
            for prediction, estimates in zip(table, values, strict=True)
        ]
        table = (table[0], *map(refuse_if_contradicted, table[1:], others[1:]))
    if _by_incumbent(dataset, plants, options) is None:
        shown, unit = float(plants.logged.mean()), return_unit(dataset)
        table = (table[0], *(_refuse_below_log(one, shown, unit) for one in table[1:]))
    chosen = choose(table, incumbent)
    movements = [predicted_movement(plants.evaluation_plant, order[one.name]) for one in table]
    warnings = (
        *log_warnings(dataset),
        *_model_warnings(dataset, plants, incumbent, candidates[incumbent], options),
        *(
            check.sentence
            for check in mode_checks(plants.held_out, dataset.spec, return_unit(dataset))
            if check.decides and not check.holds
        ),
    )
    return Selection(
        source=source,
        spec=dataset.spec,
        reward_unit=return_unit(dataset),
        incumbent=incumbent,
        chosen=incumbent if warnings else chosen,
        candidates=tuple(map(CandidateEstimates, table, values, others, distributions, movements)),
        scale=plants.scale,
        error=max(
            [plants.error, *(float(one.sure_error[0]) for one in judging_modes(plants.held_out))]
        ),
        episodes=plants.evaluation_plant.n_episodes,
        agreement=_agreement(table, [v and v.fitted_q.value for v in values]),
        discount=options.discount,
        value_members=options.value_members,
        warnings=warnings,
        agreements=_agreements(table, distributions),
        predicted=tuple(dataset.spec.obs[i].name for i in plants.model.predicted),
    )


def _with_errors(
    plants: LearnedPlants, dataset: Dataset, candidates: Mapping[str, Policy]
) -> tuple[LearnedPlants, list[str]]:
    """The plants with the errors of the model for the controllers of the log.

    The incumbent is the first candidate. Also returns the names of those that recorded a part of
    the log.
    """
    incumbent = next(iter(candidates))
    judges = np.searchsorted(np.unique(plants.rows.start), plants.evaluation_starts)
    masks = {name: own_episodes(dataset, name) for name in candidates if name != incumbent}
    filled = {name: mask for name, mask in masks.items() if mask is not None}
    plants = plants.with_model_error(
        candidates[incumbent],
        [OtherController(candidates[name], mask[judges]) for name, mask in filled.items()],
    )
    names = behaviours_of(dataset)  # imitations did not record it
    return plants, [name for name, mask in filled.items() if name in names and mask.any()]


def _by_incumbent(
    dataset: Dataset, plants: LearnedPlants, options: ChooseOptions
) -> np.ndarray | None:
    """The evaluation episodes that the incumbent recorded; ``None`` if no such episode is known."""
    own = plants.by_incumbent
    if own is None and dataset.behaviour is None and options.incumbent:
        own = np.ones(len(plants.logged), bool)
    return own if own is not None and own.any() else None


def _refuse_below_log(one: Prediction, shown: float, unit: str) -> Prediction:
    """Refuses what is predicted to earn no more than whoever recorded the log."""
    if one.returns > shown:
        return one
    sentence = (
        f"its predicted return is not above {with_unit(f'{shown:.4g}', unit)}, which the log shows "
        "in the same episodes"
    )
    return dataclasses.replace(one, refused_by=(*one.refused_by, Refusal("return", sentence)))


def _model_warnings(
    dataset: Dataset, plants: LearnedPlants, incumbent: str, policy: Policy, options: ChooseOptions
) -> tuple[str, ...]:
    """Why the model may not be used, in sentences; empty if it may.

    If the incumbent recorded episodes, as the log states or as somebody says by naming it, the
    model must reproduce their return, as in the clause *model* of a run. Otherwise the log does not
    show the true return of any candidate, and the deciding checks of the plant model take its
    place.
    """
    unit = return_unit(dataset)
    if _by_incumbent(dataset, plants, options) is not None:
        returns = own_returns(plants, policy)
        replay = ReplayCheck(incumbent, returns.predicted, returns.logged, plants.scale, unit)
        return () if replay.holds else (replay.sentence,)
    failed = [
        f"{check.name} ({check.sentence})"
        for check in checks_from_actions(plants, unit, options.seed)[2]
        if check.decides and not check.holds
    ]
    if not failed:
        return ()
    return (
        f"the log has no episode that is known to be recorded by {incumbent}, and the model fails "
        f"checks of `neorl-train choose --show model`: {'; '.join(failed)}; if one of the "
        "candidates recorded the log, name it with --incumbent NAME, so that the model only has to "
        "reproduce its return",
    )


def _values_of(
    dataset: Dataset, policies: list[Policy], plants: LearnedPlants, options: ChooseOptions
) -> tuple[list[ValueEstimates], list[ReturnDistribution]]:
    """Estimates of the value of each policy, and of the distribution of its return."""
    episodes = logged_episodes(dataset)
    values, distributions = [], []
    for policy in policies:
        settings = {
            "discount": options.discount, "updates": options.value_updates, "seed": options.seed,
        }  # fmt: skip
        members = options.value_members
        values.append(value_estimates(dataset, episodes, policy, members=members, **settings))
        distributions.append(return_distribution(dataset, episodes, policy, plants, **settings))
    return values, distributions


def _agreements(table: tuple[Prediction, ...], distributions: list[Any]) -> dict[str, float]:
    return {
        "distributional fitted Q evaluation": _agreement(
            table, [one and one.mean.value for one in distributions]
        ),
        "the same corrected by neighbours": _agreement(
            table, [one.corrected.value if one and one.near else None for one in distributions]
        ),
    }


def _agreement(table: tuple[Prediction, ...], estimates: list[float | None]) -> float:
    """Rank correlation with the model's returns over the candidates that have an estimate."""
    pairs = [
        (prediction.returns, estimate)
        for prediction, estimate in zip(table, estimates, strict=True)
        if estimate is not None
    ]
    if len(pairs) < MIN_AGREEMENT or not np.isfinite(pairs).all():
        return float("nan")
    returns, others = np.asarray(pairs).T
    return float(rank_correlation(returns, others))
