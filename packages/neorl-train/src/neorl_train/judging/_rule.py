"""The verdict: one pure function of the result tables."""

import functools
import math
from collections.abc import Sequence

from scipy.special import betaincinv

from neorl_core.costs import limit_kind
from neorl_train.judging._tables import CostCell, Estimate, PolicyRow, ResultTables
from neorl_train.judging._verdict import DEPLOY, REFUSE, UNKNOWN, Answer, Clause, Verdict
from neorl_train.judging._wording import confidence, no_simulator, number, quantity

MIN_EPISODES = 64
"""Fewer paired episodes are not enough: with 16, a bound stated at 2.5 % misses in 10 to 39 %."""
MAX_FALLBACK = 0.05
"""Largest fraction of steps in which the fallback may act; above it, the merit is its own."""


def verdict(tables: ResultTables) -> Verdict:
    """Decides whether the guarded candidate may replace the reference controller.

    The answer is ``deploy`` if all of the following clauses hold:

    - *Gain*: the lower bound of the paired difference in return from the reference is above zero.
    - *Costs*: every cost is within its limit. For a limit per episode, this is the upper bound of
      the mean sum; for a limit per step, the upper bound of the mean worst step, and the worst step
      of all episodes.
    - *Single episodes*, if the tables have an ``episode_margin``: the upper end of the exact
      interval of the share of episodes over a limit per episode must not exceed the reference's
      share by more than the margin. The same holds for the share of episodes that trip; an episode
      that trips keeps no limit.
    - *Worst episode*: the mean difference must stay above zero even if the worst episode were as
      frequent as the number of episodes cannot rule out (exact bound).
    - *Fallback*: if the fallback acted in the candidate's place, it did so in at most 5 % of the
      steps.

    The answer is ``cannot tell`` if there was no simulator or if there were too few episodes: all
    clauses hold but there were fewer than 64 episodes, or the only clauses that fail are those of
    single episodes of which the candidate had none. Otherwise it is ``do not deploy``. A number
    that is not finite fails its clause.

    Args:
        tables: Tables of one evaluation.

    Returns:
        The verdict with its clauses.

    Raises:
        ValueError: If the tables lack the guarded candidate or its difference from the reference.
    """
    if not tables.environment:
        return _unknown(tables)
    row = tables.row(tables.candidate, guarded=True)
    episode_clauses = _episode_clauses(row, tables)
    clauses = (
        _return_clause(row, tables),
        _worst_clause(row, tables),
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
        return _unknown(tables, too_few, clauses)
    answer: Answer = REFUSE if failed else DEPLOY
    return Verdict(
        answer=answer,
        sentence=_sentence(answer, failed or clauses, tables),
        candidate=tables.candidate,
        reference=tables.reference,
        rule=rule_of(tables.level, tables.episode_margin),
        clauses=clauses,
        reason="",
    )


def rule_of(level: float, episode_margin: float) -> str:
    """The rule as text.

    An infinite ``episode_margin`` is no requirement on single episodes.
    """
    bounds = f"{confidence(level)} bounds"
    rule = f"return above the reference and every cost within its limit, by {bounds}"
    if math.isinf(episode_margin):
        return rule
    return (
        f"{rule}; and at most {number(100 * episode_margin)} % more of the episodes over a limit "
        "or tripped than with the reference"
    )


def _unknown(tables: ResultTables, why: str = "", clauses: tuple[Clause, ...] = ()) -> Verdict:
    reason = why or tables.reason or no_simulator()
    return Verdict(
        answer=UNKNOWN,
        sentence=f"Cannot tell whether {tables.candidate} is better: {reason}.",
        candidate=tables.candidate,
        reference=tables.reference,
        rule=rule_of(tables.level, tables.episode_margin),
        clauses=clauses,
        reason=reason,
    )


def _return_clause(row: PolicyRow, tables: ResultTables) -> Clause:
    estimate = row.difference
    if estimate is None:
        raise ValueError(f"the results of {row.name!r} are not paired with {tables.reference!r}")
    holds = bool(estimate.low > 0)
    return Clause(
        name="return",
        statistic=f"paired difference of the return to {tables.reference}, mean over "
        f"{row.n_episodes} paired episodes",
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        bound=estimate.low,
        relation=">",
        limit=0.0,
        unit=tables.reward_unit,
        holds=holds,
        sentence=f"the lower bound of its gain in return over {tables.reference}, "
        f"{quantity(estimate.low, tables.reward_unit)}, {'is' if holds else 'is not'} above 0",
    )


def _worst_clause(row: PolicyRow, tables: ResultTables) -> Clause:
    """Whether the gain depends on a rare worst episode."""
    estimate, worst_gain = row.difference, row.least_difference
    assert estimate is not None  # the clause of the return requires it
    assert worst_gain is not None
    n = row.n_episodes
    fraction = undetected_fraction(n, tables.level)
    others = (n * estimate.value - worst_gain) / (n - 1)
    gain = fraction * worst_gain + (1 - fraction) * others
    holds = bool(gain > 0)
    unit = tables.reward_unit
    return Clause(
        name="worst episode",
        statistic=f"paired difference of the return to {tables.reference} in the worst of "
        f"{n} episodes, and the mean if {number(100 * fraction)} % of episodes were like it",
        value=worst_gain,
        low=worst_gain,
        high=worst_gain,
        bound=gain,
        relation=">",
        limit=0.0,
        unit=unit,
        holds=holds,
        sentence=f"if {number(100 * fraction)} % of the episodes were like its worst one "
        f"({quantity(worst_gain, unit)}), which {n} episodes do not rule out, its gain would "
        f"be {quantity(gain, unit)}, {'above' if holds else 'not above'} 0",
    )


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
    holds = bool(bound <= cell.limit)
    comparison = "is within" if holds else "is not within"
    subject = "worst step of the" if kind.bounds_largest else "upper bound of the mean"
    bound_text = quantity(bound, cell.unit)
    limit = kind.limit_words(cell.limit, cell.unit)
    return Clause(
        name=cell.name,
        statistic=f"{kind.quantity}, mean over {n_episodes} paired episodes"
        + (f"; worst of all {number(cell.largest)}" if kind.bounds_largest else ""),
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        bound=bound,
        relation="<=",
        limit=cell.limit,
        unit=cell.unit,
        holds=holds,
        sentence=f"the {subject} cost {cell.name}, {bound_text}, {comparison} the limit of {limit}",
    )


def _episode_clauses(row: PolicyRow, tables: ResultTables) -> list[Clause]:
    """Compares how many episodes trip or exceed a limit per episode with the reference.

    A limit per step needs no such clause, because its own clause already uses the worst step of all
    episodes. There is a clause on trips if any episode of either tripped.
    """
    if math.isinf(tables.episode_margin):
        return []
    reference = tables.row(tables.reference, guarded=False)
    fraction_clause = functools.partial(_fraction_clause, row=row, tables=tables)
    clauses = []
    for cell, reference_cell in zip(row.costs, reference.costs, strict=True):
        if not limit_kind(cell.per).bounds_largest:
            violation = f"over the limit of {cell.name}"
            fractions = cell.violating, reference_cell.violating.value
            name = f"{cell.name}, single episodes"
            clauses.append(fraction_clause(name, violation, fractions, reference_cell.violations))
    if row.trips is not None and reference.trips is not None and (row.n_trips or reference.n_trips):
        fractions = row.trips, reference.trips.value
        clauses.append(fraction_clause("trips", "that tripped", fractions, reference.n_trips))
    return clauses


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
    fraction = row.fallback
    if fraction == 0:
        return []
    holds = bool(fraction <= MAX_FALLBACK)
    return [
        Clause(
            name="fallback",
            statistic=f"steps in which the fallback acted, of {row.n_episodes} paired episodes",
            value=fraction,
            low=fraction,
            high=fraction,
            bound=fraction,
            relation="<=",
            limit=MAX_FALLBACK,
            unit="1",
            holds=holds,
            sentence=f"the fallback acted instead of the policy in {number(100 * fraction)} % of "
            f"the steps, {'within' if holds else 'not within'} {number(100 * MAX_FALLBACK)} %",
        )
    ]


def _fraction_clause(
    name: str,
    violation: str,
    fractions: tuple[Estimate, float],
    their_count: int,
    row: PolicyRow,
    tables: ResultTables,
) -> Clause:
    """A fraction of the episodes compared with that of the reference plus the margin."""
    fraction, of_reference = fractions
    limit = of_reference + tables.episode_margin
    holds = bool(fraction.high <= limit)
    return Clause(
        name=name,
        statistic=f"episodes {violation}, of {row.n_episodes} paired episodes; {tables.reference}: "
        f"{their_count}",
        value=fraction.value,
        low=fraction.low,
        high=fraction.high,
        bound=fraction.high,
        relation="<=",
        limit=limit,
        unit="1",
        holds=holds,
        sentence=f"the upper bound of the episodes {violation}, {number(100 * fraction.high)} %, "
        f"{'is' if holds else 'is not'} within {number(100 * limit)} %: the "
        f"{number(100 * of_reference)} % of {tables.reference} and a margin of "
        f"{number(100 * tables.episode_margin)} %",
    )


def _sentence(answer: Answer, deciding: Sequence[Clause], tables: ResultTables) -> str:
    permission = "may be deployed" if answer == DEPLOY else "should not be deployed"
    why = "; ".join(clause.sentence for clause in deciding)
    return " ".join(
        [f"{tables.candidate} behind its guard {permission}: {why}.", *violation_sentences(tables)]
    )


def violation_sentences(tables: ResultTables) -> list[str]:
    """Episodes of the candidate over their limit, which a clause on a mean does not show.

    Returns:
        One sentence for each such cost, with the count of the reference; empty without a simulator.
    """
    if not tables.environment:
        return []
    row = tables.row(tables.candidate, guarded=True)
    reference = next((r for r in tables.rows if r.name == tables.reference and not r.guarded), None)
    sentences = []
    for i, cell in enumerate(row.costs):
        if cell.violations:
            compared = f"; {tables.reference}: {reference.costs[i].violations}" if reference else ""
            sentences.append(
                f"Its cost {cell.name} was over the limit in {cell.violations} of {row.n_episodes} "
                f"episodes{compared}."
            )
    if row.n_trips:
        compared = f"; {tables.reference}: {reference.n_trips}" if reference else ""
        sentences.append(
            f"The plant tripped in {row.n_trips} of {row.n_episodes} episodes; a tripped episode "
            f"counts as over every limit{compared}."
        )
    return sentences
