"""The verdict on a log, based on the predictions of a plant model learned from it."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import betainc

from neorl_agents.retuning import ChoiceRule, Excitation, Prediction
from neorl_core.costs import limit_kind
from neorl_train.judging._tables import ResultTables
from neorl_train.judging._verdict import REFUSE, TRIAL, UNKNOWN, Answer, Clause, Verdict
from neorl_train.judging._wording import number, quantity, with_ends, with_unit

MAX_REPLAY_ERROR = 0.25
"""Largest error of the incumbent's predicted return, in spreads of returns in the log."""


class ReplayCheck(NamedTuple):
    """Whether a plant model reproduces the incumbent: a clause of a run, a check of a model.

    Attributes:
        incumbent: Name of the controller that runs today.
        replayed: Mean return that the model predicts for it.
        logged: Mean logged return in the same episodes.
        scale: Spread of returns in the log.
        unit: Unit of the return.
    """

    incumbent: str
    replayed: float
    logged: float
    scale: float
    unit: str

    @property
    def error(self) -> float:
        """Distance between the two returns."""
        return abs(self.replayed - self.logged)

    @property
    def allowed(self) -> float:
        """Largest error of a model that may be used."""
        return MAX_REPLAY_ERROR * self.scale

    @property
    def holds(self) -> bool:
        """Whether the model may be used; false if it diverged."""
        return bool(self.error <= self.allowed)

    @property
    def sentence(self) -> str:
        """The result, with units."""
        if not math.isfinite(self.replayed):
            return (
                f"the model diverges when {self.incumbent} acts in it, so it does not reproduce "
                "the log"
            )
        return (
            f"the model predicts a return of {quantity(self.replayed, self.unit)} for "
            f"{self.incumbent} and the log shows {quantity(self.logged, self.unit)}; the "
            f"difference {'is within' if self.holds else 'exceeds'} the allowed "
            f"{quantity(self.allowed, self.unit)}"
        )


POWER_FACTOR = 2.8
"""Gain in standard errors that is detected at 5 % with a probability of 80 %: 1.96 + 0.84."""
STOP_LEVEL = 0.05
"""Probability of stopping the trial of a policy that breaks limits as rarely as the incumbent."""
FIRST_EPISODES = 10
"""Number of first episodes that a longer trial is also stopped by, so that harm is seen early."""


class BrokenEpisodes(NamedTuple):
    """How many logged episodes broke a limit.

    Attributes:
        broken: Number of episodes over the limit of at least one cost.
        episodes: Number of episodes; 0 if they were not counted.
    """

    broken: int
    episodes: int


NOT_COUNTED = BrokenEpisodes(0, 0)


def trial_plan(
    incumbent: str,
    gain: float,
    scale: float,
    unit: str,
    logged: BrokenEpisodes | None,
) -> str:
    """How to run a trial, when to stop it, and how many episodes show the gain.

    ``scale`` is the spread of returns between episodes; ``logged`` is ``None`` if there is no cost
    with a limit.
    """
    gain = max(gain, 1e-300)
    episodes = math.ceil(2 * (POWER_FACTOR * scale / gain) ** 2)
    stop = "" if logged is None else f" {_stopping_rule(incumbent, episodes, logged)}"
    return (
        "Run it in shadow first, then with bounded authority, alternating with "
        f"{incumbent}.{stop} About {episodes} episodes of each show a gain of "
        f"{quantity(gain, unit)} four times in five."
    )


def _stopping_rule(incumbent: str, episodes: int, logged: BrokenEpisodes) -> str:
    if not logged.broken:
        why = f", because none of {logged.episodes} logged episodes does" if logged.episodes else ""
        return f"Stop at its first episode that breaks a limit{why}."
    share = logged.broken / logged.episodes
    today = f"{number(100 * share)} %"
    counts = stopping_counts(share, episodes)
    if not counts:
        return (
            f"Agree beforehand on limits that {incumbent} keeps, and stop when one is broken, "
            f"because {today} of the logged episodes break a limit and {episodes} episodes cannot "
            "show that the policy breaks one more often."
        )
    looks = " or ".join(
        f"{count} of its {'first ' if first < episodes else ''}{first}" for count, first in counts
    )
    return (
        f"Stop as soon as {looks} episodes break a limit; if it breaks one in {today} of its "
        "episodes, as in the log, the probability of stopping is at most "
        f"{number(100 * STOP_LEVEL)} %."
    )


def stopping_counts(share: float, episodes: int) -> tuple[tuple[int, int], ...]:
    """After how many broken episodes a trial stops.

    The count only grows, so it may be looked at after every episode: stopping as soon as ``k`` of
    ``n`` episodes are broken has the probability that a binomial count of ``n`` episodes is at
    least ``k``. Where there are two counts, each has half of :data:`STOP_LEVEL`.

    Args:
        share: Probability that an episode of the incumbent breaks a limit, taken as known.
        episodes: Length of the trial.

    Returns:
        Pairs of the count and the number of episodes that it applies to: the first ones of a long
        trial, then all. A pair is left out if no count is that unlikely.
    """
    looks = (FIRST_EPISODES, episodes) if episodes >= 2 * FIRST_EPISODES else (episodes,)
    pairs = []
    for n in looks:
        counts = np.arange(1, n + 1)
        at_least = betainc(counts, n - counts + 1, share)
        unlikely = np.flatnonzero(at_least <= STOP_LEVEL / len(looks))
        pairs += [(int(counts[i]), n) for i in unlikely[:1]]
    return tuple(pairs)


@dataclasses.dataclass(frozen=True)
class OtherEstimate:
    """Estimate of a gain by a method other than the networks of a plant model.

    Attributes:
        name: Name of the estimator, as used in a sentence.
        gain: Estimated gain over the incumbent, in its own measure.
        high: Largest gain that its interval and its known error leave possible.
    """

    name: str
    gain: float
    high: float


@dataclasses.dataclass(frozen=True)
class LogPrediction:
    """Prediction of a learned plant model for the candidate of a log.

    Attributes:
        prediction: Comparison of the candidate with the incumbent.
        incumbent: Name of the controller that runs today.
        replayed: Mean return that the model predicts for the incumbent.
        logged: Mean logged return in the same episodes, which are its own if the log states which
            these are.
        scale: Spread of returns in the log.
        rule: Rule by which the prediction was made.
        others: Estimates of the gain by other methods.
        excitation: How freely the actions of the log moved; ``None`` if this was not examined.
        warnings: Defects of the log on which no answer may rest, in sentences.
        broken: How many logged episodes of the incumbent broke a limit, or of all controllers if
            the log does not say who recorded it.
        replayed_episodes: Number of episodes of ``replayed`` and ``logged``; those of the
            prediction by default.
    """

    prediction: Prediction
    incumbent: str
    replayed: float
    logged: float
    scale: float
    rule: ChoiceRule
    others: tuple[OtherEstimate, ...] = ()
    excitation: Excitation | None = None
    warnings: tuple[str, ...] = ()
    broken: BrokenEpisodes = NOT_COUNTED
    replayed_episodes: int | None = None


def trial_verdict(tables: ResultTables, forecast: LogPrediction) -> Verdict:
    """Decides whether a candidate that has not been run yet is worth a trial.

    The answer is ``worth a trial`` if all of the following hold: the model reproduces the return of
    the incumbent, the lower bound of the candidate's predicted gain is above the rule's least gain,
    the upper bound of every predicted cost is within its limit, the candidate stays in the range of
    the log, no other estimator predicts a loss larger than its own error, the choice rule does not
    refuse it for another reason, every action also moved for other reasons than the measurements,
    and the log has no defect of its own. The answer is ``do not deploy`` if a cost is predicted
    beyond its limit or a loss is predicted. Otherwise it is ``cannot tell``, with what is missing.
    If the candidate is the incumbent itself, because no other one may be preferred, the answer is
    ``cannot tell`` and says to keep the incumbent.

    Args:
        tables: Tables of the log.
        forecast: Prediction of the plant model from the log.

    Returns:
        The verdict with its clauses. It is not a permission to deploy.
    """
    prediction = forecast.prediction
    is_incumbent = prediction.low == prediction.gain == 0  # identical actions in every episode
    costs = _cost_clauses(tables, forecast)
    before_costs = (_model_clause(tables, forecast), _gain_clause(tables, forecast))
    after_costs = (
        _support_clause(forecast),
        *_agreement_clauses(tables, forecast),
        *_excitation_clauses(forecast.excitation),
        *_log_clauses(forecast.warnings),
    )
    # The rule compares candidates with the incumbent, so it has nothing to say about itself.
    choice = () if is_incumbent else (_choice_clause(prediction, (*before_costs, *after_costs)),)
    clauses = (*before_costs, *costs, *after_costs, *choice)
    failed = [clause for clause in clauses if not clause.holds]
    predicts_loss = prediction.high < 0
    exceeds_cost = not all(clause.holds for clause in costs)
    is_refused = (predicts_loss or exceeds_cost) and not is_incumbent
    answer: Answer = TRIAL if not failed else REFUSE if is_refused else UNKNOWN
    reasons = "; ".join(clause.sentence for clause in failed or clauses)
    opening = {
        TRIAL: f"{prediction.name} is worth a trial, as far as the log shows",
        REFUSE: f"{prediction.name} should not be deployed",
        UNKNOWN: f"Cannot tell whether {prediction.name} is better",
    }[answer]
    if is_incumbent:
        opening = (
            f"Keep {forecast.incumbent}, because no candidate may be preferred to it "
            f"({prediction.name} is identical to it)"
        )
    # A cost may have the name of another clause, so that names alone do not tell them apart.
    other = [clause for clause in (*before_costs, *after_costs, *choice) if not clause.holds]
    closing = _trial_plan(tables, forecast) if answer == TRIAL else _remedies(other, answer)
    return Verdict(
        answer=answer,
        sentence=f"{opening}: {reasons}. {closing}".rstrip(),
        candidate=tables.candidate,
        reference=forecast.incumbent,
        rule="predicted by a plant model learned from the log: the model reproduces what runs "
        "today, the gain is above zero, every cost is within its limit, the policy stays within "
        "the data of the log, no other estimator contradicts the gain, every action also moved "
        "independently of the measurements, the log has no defect, and the choice rule does not "
        "refuse the policy",
        clauses=clauses,
        reason="" if answer != UNKNOWN else "the log does not answer this question",
    )


def _model_clause(tables: ResultTables, forecast: LogPrediction) -> Clause:
    unit = tables.reward_unit
    numbers = (forecast.replayed, forecast.logged, forecast.scale)
    own = forecast.replayed_episodes
    episodes = forecast.prediction.episodes if own is None else own
    replay = ReplayCheck(forecast.incumbent, *numbers, unit)
    error = replay.error
    return Clause(
        name="model",
        statistic="difference between the predicted and the logged return of "
        f"{forecast.incumbent}, mean over {episodes} episodes that the model was not fitted to",
        value=error,
        low=error,
        high=error,
        bound=error,
        relation="<=",
        limit=replay.allowed,
        unit=unit,
        holds=replay.holds,
        sentence=replay.sentence,
    )


def _gain_clause(tables: ResultTables, forecast: LogPrediction) -> Clause:
    prediction, minimum = forecast.prediction, forecast.rule.least_gain * forecast.scale
    holds = bool(prediction.low > minimum)
    gain = with_unit(
        with_ends(prediction.gain, prediction.low, prediction.high), tables.reward_unit
    )
    return Clause(
        name="return",
        statistic=f"predicted gain in return over {forecast.incumbent}, mean over "
        f"{prediction.episodes} replayed episodes and the networks of the model",
        value=prediction.gain,
        low=prediction.low,
        high=prediction.high,
        bound=prediction.low,
        relation=">",
        limit=minimum,
        unit=tables.reward_unit,
        holds=holds,
        sentence=f"the lower bound of its predicted gain over {forecast.incumbent}, "
        f"{gain}, {'is' if holds else 'is not'} above "
        f"{quantity(minimum, tables.reward_unit)}",
    )


def _cost_clauses(tables: ResultTables, forecast: LogPrediction) -> list[Clause]:
    prediction, clauses = forecast.prediction, []
    costs = zip(
        tables.spec.cost,
        prediction.cost,
        prediction.cost_high,
        prediction.cost_incumbent,
        strict=True,
    )
    for channel, value, high, incumbent_cost in costs:
        holds, kind = bool(high <= channel.limit), limit_kind(channel.per)
        incumbent_note = (
            f"; the mean of {forecast.incumbent}, {quantity(incumbent_cost, channel.unit)}, is "
            f"beyond it too; declare what the plant tolerates with --limits.cost {channel.name} "
            "NUMBER"
        )
        limit = kind.limit_words(channel.limit, channel.unit)
        clauses.append(
            Clause(
                name=channel.name,
                statistic=f"predicted {kind.quantity}, mean over {prediction.episodes} episodes",
                value=value,
                low=2 * value - high,
                high=high,
                bound=high,
                relation="<=",
                limit=channel.limit,
                unit=channel.unit,
                holds=holds,
                sentence=f"the upper bound of its predicted cost {channel.name}, "
                f"{quantity(high, channel.unit)}, {'is' if holds else 'is not'} within the limit "
                "of "
                f"{limit}{incumbent_note if not holds and incumbent_cost > channel.limit else ''}",
            )
        )
    return clauses


def _support_clause(forecast: LogPrediction) -> Clause:
    prediction, rule = forecast.prediction, forecast.rule
    limit = rule.farthest(prediction.outside_incumbent)
    holds = bool(prediction.outside <= limit)
    return Clause(
        name="support",
        statistic="distance from the data of the log, in standard deviations per step",
        value=prediction.outside,
        low=prediction.outside,
        high=prediction.outside,
        bound=prediction.outside,
        relation="<=",
        limit=limit,
        unit="1",
        holds=holds,
        sentence=f"it leaves the data of the log by {number(prediction.outside)} standard "
        f"deviations per step ({forecast.incumbent}: {number(prediction.outside_incumbent)}), "
        f"{'within' if holds else 'beyond'} the allowed {number(limit)}",
    )


def _agreement_clauses(tables: ResultTables, forecast: LogPrediction) -> list[Clause]:
    """Whether the estimator that is least favourable to the gain leaves it possible."""
    if not forecast.others:
        return []
    worst = min(
        forecast.others, key=lambda other: -math.inf if math.isnan(other.high) else other.high
    )
    holds = bool(worst.high > 0)
    names = ", ".join(other.name for other in forecast.others)
    if holds:
        sentence = f"no other estimator contradicts the gain ({names})"
    elif math.isnan(worst.high):
        sentence = f"{worst.name} diverged and gives no number, so it does not support the gain"
    elif worst.gain == 0:  # for example if the candidate is the incumbent
        sentence = f"{worst.name} predicts no gain at all"
    else:
        loss = quantity(abs(worst.gain), tables.reward_unit)
        sentence = (
            f"{worst.name} contradicts the gain: it predicts a loss of {loss}, beyond its own error"
        )
    return [
        Clause(
            name="agreement",
            statistic=f"largest gain in discounted return that {worst.name} leaves possible, "
            f"the smallest of {names}",
            value=worst.gain,
            low=2 * worst.gain - worst.high,
            high=worst.high,
            bound=worst.high,
            relation=">",
            limit=0.0,
            unit=tables.reward_unit,
            holds=holds,
            sentence=sentence,
        )
    ]


def _excitation_clauses(excitation: Excitation | None) -> list[Clause]:
    """Whether the log shows the effects of other actions."""
    if excitation is None:
        return []
    return [
        Clause(
            name="excitation",
            statistic="smallest fraction of the variance of a logged action that does not follow "
            "from the measurements and the other actions; 0 for a saturated action",
            value=excitation.least,
            low=excitation.least,
            high=excitation.least,
            bound=excitation.least,
            relation=">",
            limit=excitation.required,
            unit="1",
            holds=excitation.suffices,
            sentence="; ".join(excitation.warnings)
            or "every action of the log also moved independently of the measurements"
            f"{setpoint_text(excitation)}",
        )
    ]


def _choice_clause(prediction: Prediction, others: Sequence[Clause]) -> Clause:
    """Whether the choice rule refuses the candidate for a reason that no clause states.

    Args:
        prediction: Prediction for the candidate, with the reasons of the rule.
        others: The other clauses, without those of the costs. A reason about the subject of one
            that fails is stated by it.
    """
    stated = {clause.name for clause in others if not clause.holds}
    reasons = [one.sentence for one in prediction.refused_by if one.subject not in stated]
    return _none_clause(
        "choice rule",
        "objections of the choice rule to the candidate, apart from those that another clause "
        "states",
        reasons,
        "the choice rule has no other objection to it",
    )


def _none_clause(
    name: str, statistic: str, objections: Sequence[str], otherwise: str = ""
) -> Clause:
    """A clause that holds if there is no objection; its value is their number."""
    count = len(objections)
    return Clause(
        name=name,
        statistic=statistic,
        value=count,
        low=count,
        high=count,
        bound=count,
        relation="<=",
        limit=0.0,
        unit="1",
        holds=not objections,
        sentence="; ".join(objections) or otherwise,
    )


def setpoint_text(excitation: Excitation) -> str:
    """Says which actions moved freely only because a setpoint did, if there are any."""
    if not excitation.by_setpoints:
        return ""
    return f" ({', '.join(excitation.by_setpoints)} only after moves of setpoints)"


def _log_clauses(warnings: tuple[str, ...]) -> list[Clause]:
    """Defects of the log on which no answer may rest; no clause where there is none."""
    if not warnings:
        return []
    return [_none_clause("log", "defects of the log that rule out an answer", warnings)]


def _trial_plan(tables: ResultTables, forecast: LogPrediction) -> str:
    broken = forecast.broken if tables.spec.cost else None
    gain, unit = forecast.prediction.low, tables.reward_unit
    return trial_plan(forecast.incumbent, gain, forecast.scale, unit, broken)


def _remedies(failed: list[Clause], answer: Answer) -> str:
    """What would change the answer; more episodes do not change a predicted loss."""
    by_clause = {
        "model": "Name the channels that no controller influences with --retuning.exogenous, or "
        "name a controller that is closer to the one that recorded the log: if your control system "
        "shows its gains and times, declare them as [[classical.declared.NAME]].",
        "support": "Record episodes near the proposed actions.",
        "return": "Record more episodes, or with more excitation.",
        "log": "Correct the log, or leave these rows out, and start again.",
        "excitation": "Record a test signal or manual moves on the actuator (if the log has some, "
        'keep them with manual = "keep" in plant.toml), or many steps of its setpoint; an '
        "actuator that no candidate will move may be declared a disturbance in plant.toml.",
        "choice rule": "Judge a candidate that the rule allows, which --evaluation.candidate best "
        "chooses, or record episodes with actions near those that this one proposes.",
        "agreement": "Record episodes in which the actions differ from today's controller, by a "
        "test signal or by steps of its setpoints, to show which estimator is right.",
    }
    if answer == REFUSE:
        del by_clause["return"]
    return " ".join(by_clause[clause.name] for clause in failed if clause.name in by_clause)
