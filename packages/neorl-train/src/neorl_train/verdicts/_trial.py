"""The verdict on a log, based on the predictions of a plant model learned from it."""

import dataclasses
import math
from typing import NamedTuple

from neorl_agents.retuning import ChoiceRule, Excitation, Prediction
from neorl_core.costs import limit_kind
from neorl_train.results._tables import ResultTables
from neorl_train.results._wording import number, quantity, with_ends, with_unit
from neorl_train.verdicts._rule import REFUSE, UNKNOWN, Answer, Clause, Verdict

TRIAL: Answer = "worth a trial"
TRUST = 0.25
"""Largest error of the incumbent's predicted return, in spreads of returns in the log."""


class Repetition(NamedTuple):
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
        return TRUST * self.scale

    @property
    def holds(self) -> bool:
        """Whether the model may be used; false if it diverged."""
        return bool(self.error <= self.allowed)

    @property
    def sentence(self) -> str:
        """The result, with units."""
        if not math.isfinite(self.replayed):
            return f"the model diverges where {self.incumbent} acts in it, so it repeats nothing"
        return (
            f"the model predicts {quantity(self.replayed, self.unit)} of {self.incumbent}, the log "
            f"shows {quantity(self.logged, self.unit)}, {'within' if self.holds else 'not within'} "
            f"{quantity(self.allowed, self.unit)}"
        )


POWER = 2.8
"""Gain in standard errors that is detected at 5 % with a probability of 80 %: 1.96 + 0.84."""


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
        logged: Mean logged return in the same episodes.
        scale: Spread of returns in the log.
        rule: Rule by which the prediction was made.
        others: Estimates of the gain by other methods.
        excitation: How freely the actions of the log moved; ``None`` if this was not examined.
        doubts: Defects of the log on which no answer may rest, in sentences.
    """

    prediction: Prediction
    incumbent: str
    replayed: float
    logged: float
    scale: float
    rule: ChoiceRule
    others: tuple[OtherEstimate, ...] = ()
    excitation: Excitation | None = None
    doubts: tuple[str, ...] = ()


def trial_verdict(tables: ResultTables, forecast: LogPrediction) -> Verdict:
    """Decides whether a candidate that has not been run yet is worth a trial.

    The answer is ``worth a trial`` if all of the following hold: the model reproduces the return of
    the incumbent, the lower bound of the candidate's predicted gain is above the rule's least gain,
    the upper bound of every predicted cost is within its limit, the candidate stays in the range of
    the log, no other estimator predicts a loss larger than its own error, every action also moved
    for other reasons than the measurements, and the log has no defect of its own. The answer is
    ``do not deploy`` if a cost is predicted beyond its limit or a loss is predicted. Otherwise it
    is ``cannot tell``, with what is missing.

    Args:
        tables: Tables of the log.
        forecast: Prediction of the plant model from the log.

    Returns:
        The verdict with its clauses. It is not a permission to deploy.
    """
    clauses = (
        _trust_clause(tables, forecast),
        _gain_clause(tables, forecast),
        *_cost_clauses(tables, forecast),
        _support_clause(forecast),
        *_agreement_clauses(tables, forecast),
        *_excitation_clauses(forecast.excitation),
        *_log_clauses(forecast.doubts),
    )
    failed = [clause for clause in clauses if not clause.holds]
    one = forecast.prediction
    lost = one.high < 0
    over = any(clause.name in _names(tables) for clause in failed)
    answer: Answer = TRIAL if not failed else REFUSE if lost or over else UNKNOWN
    reasons = "; ".join(clause.sentence for clause in failed or clauses)
    opening = {
        TRIAL: f"{one.name} is worth a trial, as far as the log tells",
        REFUSE: f"{one.name} should not be deployed",
        UNKNOWN: f"Cannot tell whether {one.name} is better",
    }[answer]
    closing = _plan(tables, forecast) if answer == TRIAL else _missing(failed)
    return Verdict(
        answer=answer,
        sentence=f"{opening}: {reasons}. {closing}".rstrip(),
        candidate=tables.candidate,
        reference=forecast.incumbent,
        rule="predicted by a plant model learned from the log: the model repeats what runs today, "
        "gain above zero, every cost within its limit, inside what the log has seen, no other "
        "estimator contradicts it, every action moved on its own account, and the log has no "
        "defect of its own",
        clauses=clauses,
        reason="" if answer != UNKNOWN else "the log does not answer it",
    )


def _names(tables: ResultTables) -> set[str]:
    return {channel.name for channel in tables.spec.cost}


def _trust_clause(tables: ResultTables, forecast: LogPrediction) -> Clause:
    unit = tables.reward_unit
    numbers = (forecast.replayed, forecast.logged, forecast.scale)
    repeated = Repetition(forecast.incumbent, *numbers, unit)
    error = repeated.error
    return Clause(
        name="model",
        statistic=f"difference of the predicted return of {forecast.incumbent} to the logged one, "
        f"mean over {forecast.prediction.episodes} episodes that the model was not fitted to",
        value=error,
        low=error,
        high=error,
        bound=error,
        relation="<=",
        limit=repeated.allowed,
        unit=unit,
        holds=repeated.holds,
        sentence=repeated.sentence,
    )


def _gain_clause(tables: ResultTables, forecast: LogPrediction) -> Clause:
    one, least = forecast.prediction, forecast.rule.least_gain * forecast.scale
    holds = bool(one.low > least)
    gain = with_unit(with_ends(one.gain, one.low, one.high), tables.reward_unit)
    return Clause(
        name="return",
        statistic=f"predicted gain in return over {forecast.incumbent}, mean over {one.episodes} "
        "replayed episodes and the networks of the model",
        value=one.gain,
        low=one.low,
        high=one.high,
        bound=one.low,
        relation=">",
        limit=least,
        unit=tables.reward_unit,
        holds=holds,
        sentence=f"the lower bound of its predicted gain over {forecast.incumbent}, "
        f"{gain}, {'is' if holds else 'is not'} above "
        f"{quantity(least, tables.reward_unit)}",
    )


def _cost_clauses(tables: ResultTables, forecast: LogPrediction) -> list[Clause]:
    one, clauses = forecast.prediction, []
    costs = zip(tables.spec.cost, one.cost, one.cost_high, one.cost_incumbent, strict=True)
    for channel, value, high, today in costs:
        holds, kind = bool(high <= channel.limit), limit_kind(channel.per)
        too = (
            f"; the mean of {forecast.incumbent}, {quantity(today, channel.unit)}, is beyond it "
            f"too: --limits.cost {channel.name} NUMBER declares what the plant tolerates"
        )
        limit = kind.limit_words(channel.limit, channel.unit)
        clauses.append(
            Clause(
                name=channel.name,
                statistic=f"predicted {kind.quantity}, mean over {one.episodes} episodes",
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
                f"of {limit}{too if not holds and today > channel.limit else ''}",
            )
        )
    return clauses


def _support_clause(forecast: LogPrediction) -> Clause:
    one, rule = forecast.prediction, forecast.rule
    limit = rule.farthest(one.outside_incumbent)
    holds = bool(one.outside <= limit)
    return Clause(
        name="support",
        statistic="distance from what the log has seen, standard deviations a step",
        value=one.outside,
        low=one.outside,
        high=one.outside,
        bound=one.outside,
        relation="<=",
        limit=limit,
        unit="1",
        holds=holds,
        sentence=f"it leaves what the log has seen by {number(one.outside)} standard deviations a "
        f"step ({forecast.incumbent}: {number(one.outside_incumbent)}), "
        f"{'within' if holds else 'beyond'} the allowed {number(limit)}",
    )


def _agreement_clauses(tables: ResultTables, forecast: LogPrediction) -> list[Clause]:
    """Whether the estimator that is least favourable to the gain leaves it possible."""
    if not forecast.others:
        return []
    worst = min(forecast.others, key=lambda one: -math.inf if math.isnan(one.high) else one.high)
    holds = bool(worst.high > 0)
    names = ", ".join(one.name for one in forecast.others)
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
            statistic=f"largest gain that {worst.name} leaves possible, the least of {names}",
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


def _excitation_clauses(moved: Excitation | None) -> list[Clause]:
    """Whether the log shows the effects of other actions."""
    if moved is None:
        return []
    return [
        Clause(
            name="excitation",
            statistic="least part of the variance of an action of the log that does not follow "
            "from the measurements and the other actions; 0 for one that is saturated",
            value=moved.least,
            low=moved.least,
            high=moved.least,
            bound=moved.least,
            relation=">",
            limit=moved.required,
            unit="1",
            holds=moved.suffices,
            sentence="; ".join(moved.warnings)
            or "every action of the log moved for other reasons than the measurements too",
        )
    ]


def _log_clauses(doubts: tuple[str, ...]) -> list[Clause]:
    """Defects of the log on which no answer may rest; no clause where there is none."""
    if not doubts:
        return []
    return [
        Clause(
            name="log",
            statistic="defects of the log on which no answer may rest",
            value=len(doubts),
            low=len(doubts),
            high=len(doubts),
            bound=len(doubts),
            relation="<=",
            limit=0.0,
            unit="1",
            holds=False,
            sentence="; ".join(doubts),
        )
    ]


def _plan(tables: ResultTables, forecast: LogPrediction) -> str:
    gain = max(forecast.prediction.low, 1e-300)
    episodes = math.ceil(2 * (POWER * forecast.scale / gain) ** 2)
    return (
        "Run it in shadow first, then with bounded authority in turns with "
        f"{forecast.incumbent}; stop where a limit is broken more often than with it. About "
        f"{episodes} episodes of each show a gain of {quantity(gain, tables.reward_unit)} four "
        "times in five."
    )


def _missing(failed: list[Clause]) -> str:
    remedies = {
        "model": "Name the channels that no controller influences with --retuning.exogenous, or "
        "give a controller that is closer to what filled the log.",
        "support": "Record episodes near the proposed numbers.",
        "return": "Record more episodes, or with more excitation.",
        "log": "Correct the log, or leave these rows out, and begin again.",
        "excitation": "Record a test signal or moves by hand on the actuator; one that no "
        "candidate is to move may be declared a disturbance in plant.toml.",
        "agreement": "Record episodes in which the actions differ from today's controller, by a "
        "test signal or by steps of its set points: they show which estimator is right.",
    }
    return " ".join(remedies[clause.name] for clause in failed if clause.name in remedies)
