"""The sentences of a verdict: its rule, its clauses, the plan of a trial, and what is missing."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import betainc

from neorl_agents.models import ErrorAfterMoves
from neorl_agents.retuning import Excitation
from neorl_train.judging._tables import ResultTables
from neorl_train.judging._verdict import REFUSE, Answer, Clause
from neorl_train.judging._wording import (
    amount,
    confidence,
    decimals,
    duration_words,
    enumeration,
    short,
    with_interval,
)

RULE_ON_LOG = (
    "predicted by a plant model learned from the log: the model reproduces today's controller, the "
    "gain is above zero, every cost is within its limit, the policy stays within the data of the "
    "log, no other estimator contradicts the gain, every action also moved independently of the "
    "measurements, the log has no defect, and the choice rule does not refuse the policy"
)

NEAR = 0.001
"""Distance from the data of the log, in standard deviations per step, that is not worth a word."""


def rule_of(level: float, episode_margin: float) -> str:
    """The rule as text.

    An infinite ``episode_margin`` is no requirement on single episodes.
    """
    bounds = f"{confidence(level)} bounds"
    rule = f"return above that of today's controller, and every cost within its limit, by {bounds}"
    if math.isinf(episode_margin):
        return rule
    return (
        f"{rule}; and at most {short(100 * episode_margin)} % more of the episodes over a limit "
        "or tripped than with today's controller"
    )


def scores(tables: ResultTables) -> str:
    """The scores of all learners in a Gymnasium environment, beside the log's own returns."""
    texts = []
    for score in (one for one in tables.scores if one.role == "learner"):
        seeds = f" over {score.seeds} seeds" if score.seeds > 1 else ""
        ends = with_interval(score.returns, decimals([score.returns]))
        texts.append(f"{score.policy} {ends}{seeds}")
    logged = [row.returns for row in tables.rows if row.role == "log"]
    own = [f"the episodes of the log {with_interval(one, decimals([one]))}" for one in logged]
    return (
        f"Mean return of {tables.n_starts} episodes in {tables.judge}, with "
        f"{confidence(tables.level)} intervals: {enumeration([*texts, *own])}."
    )


def gain(clause: Clause, *, reference: str, level: float) -> str:
    """On the gain in paired episodes."""
    if math.isnan(clause.bound):
        return f"its gain in return over {reference} is not a number"
    ends = f"{confidence(level)} interval {short(clause.low)} to {short(clause.high)}"
    earns = amount(abs(clause.value), clause.unit)
    if clause.holds:
        return f"it earns {earns} more per episode than {reference} ({ends})"
    if clause.high < 0:
        return f"it earns {earns} less per episode than {reference} ({ends})"
    if clause.value > 0:
        return (
            f"it earns {earns} more per episode than {reference}, which chance may explain ({ends})"
        )
    return f"it earns no more per episode than {reference} ({ends})"


def worst_episode(clause: Clause, *, fraction: float, episodes: int) -> str:
    """On the gain if the worst episode were as frequent as the episodes do not rule out."""
    if math.isnan(clause.bound):
        return "the gain of its worst episode is not a number"
    worst = (
        f"if {short(100 * fraction)} % of all episodes, which {episodes} cannot rule out, were as "
        f"bad as its worst one (a gain of {amount(clause.value, clause.unit)})"
    )
    mean = amount(abs(clause.bound), clause.unit)
    if clause.holds:
        return f"even {worst}, it would still gain {mean} per episode"
    changes = f"lose {mean} per episode" if clause.bound < 0 else "gain nothing"
    return f"{worst}, it would {changes}"


def cost(
    clause: Clause, *, in_one_step: bool, limit: str, predicted: bool = False, note: str = ""
) -> str:
    """On a cost and its limit, whether it was counted or predicted."""
    if math.isnan(clause.bound):
        return f"{clause.name} is not a number; the limit is {limit}{note}"
    bound = amount(clause.bound, clause.unit, beside=clause.limit)
    where = "in the worst step of an episode" if in_one_step else "per episode on average"
    by = "predicted " if predicted else ""
    if clause.holds:
        return f"{clause.name}: {by}at most {bound} {where}; the limit is {limit}{note}"
    return f"{clause.name}: {by}up to {bound} {where}, above the limit of {limit}{note}"


def single_episodes(
    clause: Clause, *, violation: str, reference: str, of_reference: float, margin: float
) -> str:
    """On the fraction of the episodes that trip or exceed a limit."""
    bound, limit = 100 * clause.bound, 100 * clause.limit
    part = f"{short(bound, beside=limit)} % of the episodes"
    opening = f"at most {part} {violation}" if clause.holds else f"up to {part} may {violation}"
    return (
        f"{opening}; {short(limit)} % is allowed ({reference}: {short(100 * of_reference)} %, plus "
        f"a margin of {short(100 * margin)} %)"
    )


def fallback(clause: Clause) -> str:
    """On the steps in which the fallback acted."""
    value, limit = 100 * clause.value, 100 * clause.limit
    allowed = f"; {short(limit)} % is allowed"
    if not clause.holds:
        allowed = f", more than the allowed {short(limit)} %"
    return (
        "the fallback acted instead of the policy in "
        f"{short(value, beside=limit)} % of the steps{allowed}"
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


def replay(incumbent: str, replayed: float, logged: float, allowed: float, unit: str) -> str:
    """On whether a plant model reproduces the incumbent."""
    if not math.isfinite(replayed):
        return f"the model diverges when {incumbent} acts in it, so it does not reproduce the log"
    reproduces = "reproduces" if abs(replayed - logged) <= allowed else "does not reproduce"
    return (
        f"the model {reproduces} {incumbent}: it predicts a return of {amount(replayed, unit)}, "
        f"and the log shows {amount(logged, unit)} (a difference of {amount(allowed, unit)} is "
        "allowed)"
    )


def after_moves(found: ErrorAfterMoves | None) -> str:
    """On what the model alone predicts after moves; it follows the sentence on the replay."""
    if found is None:
        return ""
    if not math.isfinite(found.share):
        return f"; its own predictions diverge within {found.steps} steps after moves"
    return (
        f"; {found.steps} steps after the largest moves of the actions in these episodes, the "
        f"error of its own predictions is {short(100 * found.share)} % of that of the better of "
        "two guesses, the last value and the mean"
    )


def predicted_gain(clause: Clause, *, incumbent: str) -> str:
    """On the gain that a plant model predicts."""
    ends = (
        f"interval {short(clause.low, beside=clause.limit)} to {short(clause.high)}, whose lower "
        f"end must be above {short(clause.limit)}"
    )
    earns = amount(abs(clause.value), clause.unit)
    if clause.holds:
        return f"the model predicts {earns} more per episode than with {incumbent} ({ends})"
    if clause.high < 0:
        return f"the model predicts {earns} less per episode than with {incumbent} ({ends})"
    return f"the model predicts no clear gain over {incumbent} ({ends})"


def cost_of_incumbent(name: str, incumbent: str, mean: str) -> str:
    """Addition to the clause of a cost of which the incumbent exceeds the limit as well."""
    return (
        f"; the mean of {incumbent}, {mean}, is beyond it too; declare what the plant tolerates "
        f"with --limits.cost {name} NUMBER"
    )


def support(clause: Clause, *, incumbent: str, of_incumbent: float) -> str:
    """On the distance from the data of the log."""
    if clause.value < NEAR:
        return "it stays within the data of the log"
    distance = short(clause.value, beside=clause.limit)
    allowed = f"; {short(clause.limit)} is allowed"
    if not clause.holds:
        allowed = f", more than the allowed {short(clause.limit)}"
    return (
        f"it leaves the data of the log by {distance} standard deviations per step "
        f"({incumbent}: {short(of_incumbent)}){allowed}"
    )


def agreement(clause: Clause, *, estimator: str, names: str) -> str:
    """On the estimator that is least favourable to the gain."""
    if clause.holds:
        return f"no other estimator contradicts the gain ({names})"
    if math.isnan(clause.bound):
        return f"{estimator} diverged and gives no number, so it does not support the gain"
    if clause.value == 0:  # for example if the candidate is the incumbent
        return f"{estimator} predicts no gain at all"
    loss = amount(abs(clause.value), clause.unit)
    return f"{estimator} contradicts the gain: it predicts a loss of {loss}, beyond its own error"


def excitation(found: Excitation) -> str:
    """On whether the log shows the effects of other actions."""
    return "; ".join(found.warnings) or (
        "every action of the log also moved independently of the measurements"
        f"{setpoint_text(found)}"
    )


def setpoint_text(excitation: Excitation) -> str:
    """Says which actions moved freely only because a setpoint did, if there are any."""
    if not excitation.by_setpoints:
        return ""
    return f" ({', '.join(excitation.by_setpoints)} only after moves of setpoints)"


_REMEDIES = {
    "model": "Name the channels that no controller influences with --retuning.exogenous, or name a "
    "controller that is closer to the one that recorded the log: declare its gains and times as "
    "[[loop]] in plant.toml, or compare them with the faceplate if they are declared.",
    "support": "Record episodes near the proposed actions.",
    "return": "Record more episodes, or with more excitation.",
    "log": "Correct the log, mend what is named, or leave these rows out, and start again.",
    "excitation": "Record a test signal or manual moves on the actuator (if the log has some, keep "
    'them with manual = "keep" in plant.toml), or many steps of its setpoint; an actuator that no '
    "candidate will move may be declared a disturbance in plant.toml.",
    "choice rule": "Judge a candidate that the rule allows, which --evaluation.candidate best "
    "chooses, or record episodes with actions near those that this one proposes.",
    "agreement": "Record episodes in which the actions differ from today's controller, by a test "
    "signal or by steps of its setpoints, to show which estimator is right.",
}


def remedies(failed: Sequence[Clause], answer: Answer) -> str:
    """What would change the answer; more episodes do not change a predicted loss."""
    names = [clause.name for clause in failed if clause.name in _REMEDIES]
    return " ".join(_REMEDIES[name] for name in names if (name, answer) != ("return", REFUSE))


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
    *,
    episode: float = math.nan,
) -> str:
    """How to run a trial, when to stop it, and how many episodes show the gain.

    ``scale`` is the spread of returns between episodes; ``logged`` is ``None`` if there is no cost
    with a limit; ``episode`` is the length of an episode in seconds.
    """
    gain = max(gain, 1e-300)
    episodes = math.ceil(2 * (POWER_FACTOR * scale / gain) ** 2)
    lasting = f", {duration_words(episodes * episode)}," if math.isfinite(episode) else ""
    stop = "" if logged is None else f" {_stopping_rule(incumbent, episodes, logged)}"
    return (
        "Run it in shadow first, then with bounded authority, alternating with "
        f"{incumbent}.{stop} About {episodes} episodes of each{lasting} show a gain of "
        f"{amount(gain, unit)} four times in five."
    )


def _stopping_rule(incumbent: str, episodes: int, logged: BrokenEpisodes) -> str:
    if not logged.broken:
        why = f", because none of {logged.episodes} logged episodes does" if logged.episodes else ""
        return f"Stop at its first episode that breaks a limit{why}."
    share = logged.broken / logged.episodes
    today = f"{short(100 * share)} %"
    counts = stopping_counts(share, episodes)
    if not counts:
        return (
            f"{today} of the logged episodes break a limit, so {episodes} episodes cannot show "
            f"that the policy is worse. Agree on limits that {incumbent} keeps, and stop at the "
            "first episode that breaks one."
        )
    looks = " or ".join(
        f"{count} of its {'first ' if first < episodes else ''}{first}" for count, first in counts
    )
    return (
        f"Stop as soon as {looks} episodes break a limit; if it breaks one in {today} of its "
        "episodes, as in the log, the probability of stopping is at most "
        f"{short(100 * STOP_LEVEL)} %."
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
