"""The rule of the verdict: on a plant, of the result tables; on a log, of a model's predictions.

Both are pure functions. A clause is data with a sentence of ``_sentences.py``.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from scipy.special import betaincinv

from neorl_agents.models import ErrorAfterMoves
from neorl_agents.retuning import ChoiceRule, Excitation, Prediction
from neorl_core.costs import limit_kind
from neorl_train.judging import _sentences
from neorl_train.judging._sentences import NOT_COUNTED, BrokenEpisodes
from neorl_train.judging._tables import CostCell, Estimate, PolicyRow, ResultTables
from neorl_train.judging._verdict import DEPLOY, REFUSE, TRIAL, UNKNOWN, Answer, Clause, Verdict
from neorl_train.judging._wording import amount, no_simulator, short

MIN_EPISODES = 64
"""Fewer paired episodes are not enough: with 16, a bound stated at 2.5 % misses in 10 to 39 %."""
MAX_FALLBACK = 0.05
"""Largest fraction of steps in which the fallback may act; above it, the merit is its own."""
MAX_REPLAY_ERROR = 0.25
"""Largest error of the incumbent's predicted return, in spreads of returns in the log."""


def verdict(tables: ResultTables) -> Verdict:
    """Decides whether the guarded candidate may replace the reference controller.

    The answer is ``deploy`` if all of the following clauses hold:

    - *Gain*: the lower end of the interval of the paired difference in return from the reference
      is above zero.
    - *Costs*: every cost is within its limit. For a limit per episode, this is the upper end of
      the interval of the mean sum; for a limit per step, that of the mean worst step, and the worst
      step of all episodes.
    - *Single episodes*, if the tables have an ``episode_margin``: the upper end of the exact
      interval of the share of episodes over a limit per episode must not exceed the reference's
      share by more than the margin. The same holds for the share of episodes that trip; an episode
      that trips keeps no limit.
    - *Worst episode*: the mean difference must stay above zero even if the worst episode were as
      frequent as the number of episodes cannot rule out (exact bound).
    - *Fallback*: if the fallback acted in the candidate's place, it did so in at most 5 % of the
      steps.
    - *Change*: the candidate is not today's controller without a change, which is kept.

    The answer is ``cannot tell`` if there was no simulator or if there were too few episodes: all
    clauses hold but there were fewer than 64 episodes, or the only clauses that fail are those of
    single episodes of which the candidate had none. It is also the answer to scores in a Gymnasium
    environment, whose sentence is these scores. Otherwise it is ``do not deploy``. A number
    that is not finite fails its clause.

    Args:
        tables: Tables of one evaluation.

    Returns:
        The verdict with its clauses.

    Raises:
        ValueError: If the tables lack the guarded candidate or its difference from the reference.
    """
    if tables.judge:
        return dataclasses.replace(_cannot_tell(tables), sentence=_sentences.scores(tables))
    if not tables.environment:
        return _cannot_tell(tables)
    row = tables.row(tables.candidate, guarded=True)
    episode_clauses = _episode_clauses(row, tables)
    clauses = (
        *_kept_clauses(tables),
        *_gain_clauses(row, tables),
        *(_cost_clause(cell, row.n_episodes) for cell in row.costs),
        *episode_clauses,
        *_fallback_clauses(row),
    )
    failed = [clause for clause in clauses if not clause.holds]
    numbers = [_episodes_needed(clause, tables.level) for clause in episode_clauses]
    undecided = [c for c, number in zip(episode_clauses, numbers, strict=True) if number]
    needed = max(MIN_EPISODES, *numbers) if numbers else MIN_EPISODES
    if row.n_episodes < needed and all(clause in undecided for clause in failed):
        too_few = (
            f"{row.n_episodes} paired episodes are too few for its bounds; take "
            f"{needed} or more with --evaluation.starts"
        )
        return _cannot_tell(tables, too_few, clauses)
    answer: Answer = REFUSE if failed else DEPLOY
    permission = "may be deployed" if answer == DEPLOY else "should not be deployed"
    why = "; ".join(clause.sentence for clause in failed or clauses)
    subject = f"{tables.candidate} behind its guard {permission}"
    sentence = f"Keep {tables.kept}: {why}." if tables.kept else f"{subject}: {why}."
    return Verdict(
        answer=answer,
        sentence=" ".join([sentence, *_sentences.violation_sentences(tables)]),
        candidate=tables.candidate,
        reference=tables.reference,
        rule=_sentences.rule_of(tables.level, tables.episode_margin),
        clauses=clauses,
        reason="",
    )


def _cannot_tell(tables: ResultTables, why: str = "", clauses: tuple[Clause, ...] = ()) -> Verdict:
    reason = why or tables.reason or no_simulator()
    return Verdict(
        answer=UNKNOWN,
        sentence=f"Cannot tell whether {tables.candidate} is better: {reason}.",
        candidate=tables.candidate,
        reference=tables.reference,
        rule=_sentences.rule_of(tables.level, tables.episode_margin),
        clauses=clauses,
        reason=reason,
    )


def _kept_clauses(tables: ResultTables) -> list[Clause]:
    """Refuses today's controller under another name, which its guard alone may make look better."""
    if not tables.kept:
        return []
    return [
        Clause.of(
            "change",
            f"tuning parameters that differ from those of {tables.kept}",
            *(0.0, ">", 0.0, "1"),
            lambda _: f"{tables.candidate} is {tables.kept} without a change",
        )
    ]


def _gain_clauses(row: PolicyRow, tables: ResultTables) -> tuple[Clause, Clause]:
    """Whether there is a gain, and whether it depends on a rare worst episode."""
    estimate, worst_gain = row.difference, row.least_difference
    if estimate is None or worst_gain is None:
        raise ValueError(f"the results of {row.name!r} are not paired with {tables.reference!r}")
    n = row.n_episodes
    fraction = undetected_fraction(n, tables.level)
    others = (n * estimate.value - worst_gain) / (n - 1)
    gain = Clause.of(
        "return",
        f"return compared with {tables.reference}, mean over {n} paired episodes",
        estimate,
        *(">", 0.0, tables.reward_unit),
        partial(_sentences.gain, reference=tables.reference, level=tables.level),
    )
    worst = Clause.of(
        "worst episode",
        f"worst of {n} episodes: return compared with {tables.reference}, and the mean if "
        f"{short(100 * fraction)} % of episodes were like it",
        worst_gain,
        *(">", 0.0, tables.reward_unit),
        partial(_sentences.worst_episode, fraction=fraction, episodes=n),
        bound=fraction * worst_gain + (1 - fraction) * others,
    )
    return gain, worst


@functools.cache
def undetected_fraction(n: int, level: float) -> float:
    """Largest fraction of episodes that is compatible with one occurrence in ``n``.

    Args:
        n: Number of episodes; at least two.
        level: Confidence level of the two-sided interval whose upper end is used.

    Returns:
        The upper end of the exact interval of one success in ``n`` trials.

    Source: Clopper and Pearson, The use of confidence or fiducial limits illustrated in the case of
    the binomial, Biometrika 26 (1934) 404.
    """
    return float(betaincinv(2, n - 1, (1 + level) / 2))


def _cost_clause(cell: CostCell, n_episodes: int) -> Clause:
    estimate, kind = cell.limited, limit_kind(cell.per)
    bound = max(estimate.high, cell.largest) if kind.bounds_largest else estimate.high
    if math.isnan(cell.largest):  # the result of max() would depend on the order of its arguments
        bound = cell.largest
    worst = f"; worst of all {short(cell.largest)}" if kind.bounds_largest else ""
    return Clause.of(
        cell.name,
        f"{kind.quantity}, mean over {n_episodes} paired episodes{worst}",
        estimate,
        *("<=", cell.limit, cell.unit),
        partial(
            _sentences.cost,
            in_one_step=kind.bounds_largest,
            limit=kind.limit_words(cell.limit, cell.unit),
        ),
        bound=bound,
    )


def _episode_clauses(row: PolicyRow, tables: ResultTables) -> list[Clause]:
    """Compares how many episodes trip or exceed a limit per episode with the reference.

    A limit per step needs no such clause, because its own clause already uses the worst step of all
    episodes. There is a clause on trips if any episode of either tripped.
    """
    if math.isinf(tables.episode_margin):
        return []
    reference = tables.row(tables.reference, guarded=False)
    counted = [
        (
            f"{cell.name}, single episodes",
            f"exceed the limit of {cell.name}",
            *(cell.violating, of_reference.violating.value, of_reference.violations),
        )
        for cell, of_reference in zip(row.costs, reference.costs, strict=True)
        if not limit_kind(cell.per).bounds_largest
    ]
    if row.trips is not None and reference.trips is not None and (row.n_trips or reference.n_trips):
        of_trips = row.trips, reference.trips.value, reference.n_trips
        counted.append(("trips", "trip", *of_trips))
    return [
        Clause.of(
            name,
            f"episodes that {violation}, of {row.n_episodes} paired episodes; {tables.reference}: "
            f"{count}",
            fraction,
            *("<=", of_reference + tables.episode_margin, "1"),
            partial(
                _sentences.single_episodes,
                violation=violation,
                reference=tables.reference,
                of_reference=of_reference,
                margin=tables.episode_margin,
            ),
        )
        for name, violation, fraction, of_reference, count in counted
    ]


def _episodes_needed(clause: Clause, level: float) -> int:
    """Number of episodes with which a clause on a fraction would hold if none of them counted.

    The upper end of the exact interval of zero in ``n`` is ``1 - ((1 - level) / 2) ** (1 / n)``
    (Clopper and Pearson). The number is 0 if the clause has counted an episode of the candidate, or
    if its limit is not a fraction below 1.
    """
    if clause.value != 0 or not 0 < clause.limit < 1:
        return 0
    return math.ceil(math.log((1 - level) / 2) / math.log1p(-clause.limit))


def _fallback_clauses(row: PolicyRow) -> list[Clause]:
    """Clause on who acted; none if the candidate acted in every step."""
    if row.fallback == 0:
        return []
    statistic = f"steps in which the fallback acted, of {row.n_episodes} paired episodes"
    relation = ("<=", MAX_FALLBACK, "1")
    return [Clause.of("fallback", statistic, row.fallback, *relation, _sentences.fallback)]


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
        returns = self.replayed, self.logged
        return _sentences.replay(self.incumbent, *returns, self.allowed, self.unit)


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
        after_moves: How well the model alone predicts what follows moves; ``None`` likewise.
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
    after_moves: ErrorAfterMoves | None = None
    warnings: tuple[str, ...] = ()
    broken: BrokenEpisodes = NOT_COUNTED
    replayed_episodes: int | None = None


def trial_verdict(tables: ResultTables, forecast: LogPrediction) -> Verdict:
    """Decides whether a candidate that has not been run yet is worth a trial.

    The answer is ``worth a trial`` if all of the following hold: the model reproduces the return of
    the incumbent, the lower end of the candidate's predicted gain is above the rule's least gain,
    the upper end of every predicted cost is within its limit, the candidate stays in the range of
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
    before_costs = _model_clauses(tables, forecast)
    costs = _predicted_cost_clauses(tables, forecast)
    after_costs = _log_clauses(tables, forecast)
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
    closing = _sentences.remedies(other, answer)
    if answer == TRIAL:
        broken = forecast.broken if tables.spec.cost else None
        gain = prediction.low, forecast.scale, tables.reward_unit
        length = tables.spec.dt * tables.spec.horizon
        closing = _sentences.trial_plan(forecast.incumbent, *gain, broken, episode=length)
    return Verdict(
        answer=answer,
        sentence=f"{opening}: {reasons}. {closing}".rstrip(),
        candidate=tables.candidate,
        reference=forecast.incumbent,
        rule=_sentences.RULE_ON_LOG,
        clauses=clauses,
        reason="" if answer != UNKNOWN else "the log does not answer this question",
    )


def _model_clauses(tables: ResultTables, forecast: LogPrediction) -> tuple[Clause, Clause]:
    """Whether the model reproduces the incumbent, and whether it predicts a gain."""
    prediction, incumbent, unit = forecast.prediction, forecast.incumbent, tables.reward_unit
    own = forecast.replayed_episodes
    replayed = prediction.episodes if own is None else own
    replay = ReplayCheck(incumbent, forecast.replayed, forecast.logged, forecast.scale, unit)
    model = Clause.of(
        "model",
        f"difference between the predicted and the logged return of {incumbent}, mean over "
        f"{replayed} episodes that the model was not fitted to",
        replay.error,
        *("<=", replay.allowed, unit),
        lambda _: replay.sentence + _sentences.after_moves(forecast.after_moves),
    )
    gain = Clause.of(
        "return",
        f"predicted gain in return over {incumbent}, mean over {prediction.episodes} replayed "
        "episodes and the networks of the model",
        Estimate(prediction.gain, prediction.low, prediction.high),
        *(">", forecast.rule.least_gain * forecast.scale, unit),
        partial(_sentences.predicted_gain, incumbent=incumbent),
    )
    return model, gain


def _predicted_cost_clauses(tables: ResultTables, forecast: LogPrediction) -> list[Clause]:
    prediction, incumbent = forecast.prediction, forecast.incumbent
    means = (prediction.cost, prediction.cost_high, prediction.cost_incumbent)
    clauses = []
    for channel, value, high, today in zip(tables.spec.cost, *means, strict=True):
        kind, note = limit_kind(channel.per), ""
        if not high <= channel.limit and today > channel.limit:  # NaN is not within it
            mean = amount(today, channel.unit)
            note = _sentences.cost_of_incumbent(channel.name, incumbent, mean)
        clauses.append(
            Clause.of(
                channel.name,
                f"predicted {kind.quantity}, mean over {prediction.episodes} episodes",
                Estimate(value, 2 * value - high, high),
                *("<=", channel.limit, channel.unit),
                partial(
                    _sentences.cost,
                    in_one_step=kind.bounds_largest,
                    predicted=True,
                    limit=kind.limit_words(channel.limit, channel.unit),
                    note=note,
                ),
            )
        )
    return clauses


def _log_clauses(tables: ResultTables, forecast: LogPrediction) -> tuple[Clause, ...]:
    """Whether the log supports the prediction: its data, other estimators, its own defects."""
    prediction, excitation = forecast.prediction, forecast.excitation
    support = Clause.of(
        "support",
        "distance from the data of the log, in standard deviations per step",
        prediction.outside,
        *("<=", forecast.rule.farthest(prediction.outside_incumbent), "1"),
        partial(
            _sentences.support,
            incumbent=forecast.incumbent,
            of_incumbent=prediction.outside_incumbent,
        ),
    )
    clauses = [support, *_agreement_clauses(forecast.others, tables.reward_unit)]
    if excitation is not None:
        clauses.append(
            Clause.of(
                "excitation",
                "share of an action's variance that the measurements and the other actions do not "
                "explain (smallest of all actions)",
                excitation.least,
                *(">", excitation.required, "1"),
                lambda _: _sentences.excitation(excitation),
            )
        )
    if forecast.warnings:
        statistic = "defects of the log that rule out an answer"
        clauses.append(_none_clause("log", statistic, forecast.warnings))
    return tuple(clauses)


def _agreement_clauses(others: Sequence[OtherEstimate], unit: str) -> list[Clause]:
    """Whether the estimator that is least favourable to the gain leaves it possible."""
    if not others:
        return []
    worst = min(others, key=lambda other: -math.inf if math.isnan(other.high) else other.high)
    names = ", ".join(other.name for other in others)
    return [
        Clause.of(
            "agreement",
            f"largest gain in discounted return that the least favourable estimator ({worst.name}) "
            "allows",
            Estimate(worst.gain, 2 * worst.gain - worst.high, worst.high),
            *(">", 0.0, unit),
            partial(_sentences.agreement, estimator=worst.name, names=names),
            bound=worst.high,
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
        "other objections of the choice rule",
        reasons,
        "the choice rule has no other objection to it",
    )


def _none_clause(
    name: str, statistic: str, objections: Sequence[str], otherwise: str = ""
) -> Clause:
    """A clause that holds if there is no objection; its value is their number."""
    sentence = "; ".join(objections) or otherwise
    return Clause.of(name, statistic, len(objections), "<=", 0.0, "1", lambda _: sentence)
