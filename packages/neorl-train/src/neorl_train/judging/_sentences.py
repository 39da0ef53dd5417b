"""The sentences of a verdict: its rule, its clauses, the plan of a trial, and what is missing."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import betainc

from neorl_agents.retuning import Excitation
from neorl_train.judging._tables import ResultTables
from neorl_train.judging._verdict import REFUSE, Answer, Clause
from neorl_train.judging._wording import confidence, number, quantity, with_ends, with_unit

RULE_ON_LOG = (
    "predicted by a plant model learned from the log: the model reproduces what runs today, the "
    "gain is above zero, every cost is within its limit, the policy stays within the data of the "
    "log, no other estimator contradicts the gain, every action also moved independently of the "
    "measurements, the log has no defect, and the choice rule does not refuse the policy"
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


def _is(clause: Clause) -> str:
    return "is" if clause.holds else "is not"


def gain(clause: Clause, *, reference: str) -> str:
    """On the gain in paired episodes."""
    return (
        f"the lower bound of its gain in return over {reference}, "
        f"{quantity(clause.bound, clause.unit)}, {_is(clause)} above 0"
    )


def worst_episode(clause: Clause, *, fraction: float, episodes: int) -> str:
    """On the gain if the worst episode were as frequent as the episodes do not rule out."""
    return (
        f"if {number(100 * fraction)} % of the episodes were like its worst one "
        f"({quantity(clause.value, clause.unit)}), which {episodes} episodes do not rule out, its "
        f"gain would be {quantity(clause.bound, clause.unit)}, "
        f"{'above' if clause.holds else 'not above'} 0"
    )


def cost(clause: Clause, *, subject: str, limit: str, note: str = "") -> str:
    """On a cost and its limit, whether it was counted or predicted."""
    return (
        f"the {subject} cost {clause.name}, {quantity(clause.bound, clause.unit)}, {_is(clause)} "
        f"within the limit of {limit}{note}"
    )


def single_episodes(
    clause: Clause, *, violation: str, reference: str, of_reference: float, margin: float
) -> str:
    """On the fraction of the episodes that trip or exceed a limit."""
    return (
        f"the upper bound of the episodes {violation}, {number(100 * clause.bound)} %, "
        f"{_is(clause)} within {number(100 * clause.limit)} %: the {number(100 * of_reference)} % "
        f"of {reference} and a margin of {number(100 * margin)} %"
    )


def fallback(clause: Clause) -> str:
    """On the steps in which the fallback acted."""
    return (
        f"the fallback acted instead of the policy in {number(100 * clause.value)} % of the steps, "
        f"{'within' if clause.holds else 'not within'} {number(100 * clause.limit)} %"
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
    holds = abs(replayed - logged) <= allowed
    return (
        f"the model predicts a return of {quantity(replayed, unit)} for {incumbent} and the log "
        f"shows {quantity(logged, unit)}; the difference {'is within' if holds else 'exceeds'} the "
        f"allowed {quantity(allowed, unit)}"
    )


def predicted_gain(clause: Clause, *, incumbent: str) -> str:
    """On the gain that a plant model predicts."""
    ends = with_unit(with_ends(clause.value, clause.low, clause.high), clause.unit)
    return (
        f"the lower bound of its predicted gain over {incumbent}, {ends}, {_is(clause)} above "
        f"{quantity(clause.limit, clause.unit)}"
    )


def cost_of_incumbent(name: str, incumbent: str, mean: str) -> str:
    """Addition to the clause of a cost of which the incumbent exceeds the limit as well."""
    return (
        f"; the mean of {incumbent}, {mean}, is beyond it too; declare what the plant tolerates "
        f"with --limits.cost {name} NUMBER"
    )


def support(clause: Clause, *, incumbent: str, of_incumbent: float) -> str:
    """On the distance from the data of the log."""
    return (
        f"it leaves the data of the log by {number(clause.value)} standard deviations per step "
        f"({incumbent}: {number(of_incumbent)}), {'within' if clause.holds else 'beyond'} the "
        f"allowed {number(clause.limit)}"
    )


def agreement(clause: Clause, *, estimator: str, names: str) -> str:
    """On the estimator that is least favourable to the gain."""
    if clause.holds:
        return f"no other estimator contradicts the gain ({names})"
    if math.isnan(clause.bound):
        return f"{estimator} diverged and gives no number, so it does not support the gain"
    if clause.value == 0:  # for example if the candidate is the incumbent
        return f"{estimator} predicts no gain at all"
    loss = quantity(abs(clause.value), clause.unit)
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
    "controller that is closer to the one that recorded the log: if your control system shows its "
    "gains and times, declare them as [[classical.declared.NAME]].",
    "support": "Record episodes near the proposed actions.",
    "return": "Record more episodes, or with more excitation.",
    "log": "Correct the log, or leave these rows out, and start again.",
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
