"""The choice of the candidate that a run delivers, without the plant."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from neorl_agents.retuning import LearnedPlants, Prediction, select
from neorl_core import InputError, Policy, Spec
from neorl_envs import Dataset
from neorl_train.candidates._family import Material
from neorl_train.candidates._retuned import RULE, gain_text
from neorl_train.candidates._table import BEST
from neorl_train.choosing import logged_episodes, other_estimates, value_estimates
from neorl_train.choosing._own_returns import own_returns
from neorl_train.data._behaviours import own_episodes
from neorl_train.data._data_warnings import log_warnings
from neorl_train.data._experience import Experience
from neorl_train.judging._pool import COMPARED, LEARNER, RESIDUAL, RETUNED, Candidate, Pool
from neorl_train.judging._rollout_episodes import recorded_episodes
from neorl_train.judging._trial import LogPrediction
from neorl_train.judging._trial_plan import BrokenEpisodes


class Choice(NamedTuple):
    """The candidate of a run.

    Attributes:
        candidate: The policy to deliver.
        prediction: What a plant model predicts for it; ``None`` if the run learned none.
        notes: The reason, in sentences: the predictions of the pool.
    """

    candidate: Candidate
    prediction: LogPrediction | None
    notes: list[str]


def choose(material: Material, notes: Sequence[str] = ()) -> Choice:
    """The configured candidate, or the best one of the pool by the prediction of a plant model.

    Without a plant model the configured candidate is delivered. If nothing may be preferred to the
    incumbent, the retuned controller represents it.

    Args:
        material: What the candidates were made from, with all of them in its pool.
        notes: Sentences on candidates that could not be made.

    Raises:
        InputError: If the configured candidate could not be made.
    """
    requested = material.config.evaluation.candidate
    named = material.pool.named(requested)
    if requested != BEST and not named:
        raise InputError(
            f"evaluation.candidate is {requested!r}, which the run cannot produce: "
            f"{'; '.join(notes)}"
        )
    plants, incumbent = material.plants, material.incumbent
    if plants is None or incumbent is None:
        return Choice(named[0], None, [])
    name = material.config.retuning.controller
    pool = comparable(material)
    chosen, table = select(
        plants,
        {name: incumbent, **pool.policies},
        name,
        RULE,
        logged=[candidate.id for candidate in pool if candidate.from_log],
        searched=[candidate.id for candidate in pool.of(RETUNED, RESIDUAL)],
    )
    sentences = [_prediction_line(pool[row.name], row) for row in table if row.name != name]
    if requested != BEST:
        candidate = named[0]
    elif chosen == name:
        (candidate,) = pool.of(RETUNED)
        sentences.append(f"no candidate may be preferred to {name}; keep it")
    else:
        candidate = pool[chosen]
        sentences.append(
            f"{candidate.title} was chosen from the predictions alone, without a run on the plant"
        )
    prediction = {row.name: row for row in table}[candidate.id]
    own = own_returns(plants, incumbent)
    outcome = LogPrediction(
        prediction,
        name,
        own.predicted,
        own.logged,
        plants.scale,
        RULE,
        replayed_episodes=own.episodes,
    )
    return Choice(candidate, outcome, [*notes, *sentences])


def comparable(material: Material) -> Pool:
    """The candidates that are compared with each other: of every learner the first seed.

    The incumbent is compared already; under its second name it is a candidate only on request.
    """
    config, first = material.config, material.seed
    incumbent, requested = config.retuning.controller, config.evaluation.candidate

    def takes_part(candidate: Candidate) -> bool:
        if candidate.family == COMPARED:
            return False
        if candidate.family == LEARNER:
            return candidate.name in config.training.algorithms and candidate.seeds == (first,)
        return candidate.name != incumbent or requested == incumbent

    return material.pool.only(filter(takes_part, material.pool))


def with_others(
    prediction: LogPrediction,
    plants: LearnedPlants,
    incumbent: Policy,
    candidate: Policy,
    experience: Experience,
) -> LogPrediction:
    """Adds other estimates of the gain, and facts about the log, to a prediction from a log.

    Args:
        prediction: Prediction of the plant model.
        plants: Plant models of the run.
        incumbent: The controller that runs today.
        candidate: The policy to deliver.
        experience: The log, and the warnings about its signals.
    """
    dataset = experience.dataset
    episodes = logged_episodes(dataset)
    candidate_estimates, incumbent_estimates = (
        value_estimates(dataset, episodes, policy) for policy in (candidate, incumbent)
    )
    others = other_estimates(prediction.prediction, candidate_estimates, incumbent_estimates)
    return dataclasses.replace(
        prediction,
        others=others,
        excitation=plants.excitation,
        warnings=tuple(log_warnings(dataset, experience.signal_warnings)),
        broken=broken_episodes(dataset, plants.model.spec, prediction.incumbent),
    )


def broken_episodes(dataset: Dataset, spec: Spec, incumbent: str) -> BrokenEpisodes:
    """Counts the logged episodes that broke a limit.

    Args:
        dataset: The log.
        spec: Channels with the cost limits of the run.
        incumbent: Controller whose episodes are counted; all of them if the log does not say which
            are its own.
    """
    broken = np.asarray(recorded_episodes(dataset, spec).violated.any(axis=1))
    own = own_episodes(dataset, incumbent)
    counted = broken if own is None or not own.any() else broken[own]
    return BrokenEpisodes(int(counted.sum()), len(counted))


def _prediction_line(candidate: Candidate, prediction: Prediction) -> str:
    remarks = prediction.refusals or ("it may be preferred",)
    return "; ".join((f"{candidate.title}: predicted gain {gain_text(prediction)}", *remarks))
