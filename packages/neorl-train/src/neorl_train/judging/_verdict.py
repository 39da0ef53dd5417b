"""A verdict with its clauses, its sentence in parts, and its file ``verdict.json``."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from neorl_core.infrastructure import head, write_json
from neorl_train.judging._results import decode, from_plain, read_json, to_plain
from neorl_train.judging._tables import Estimate
from neorl_train.runs._directory import VERDICT, policy_file

Answer = Literal["deploy", "worth a trial", "do not deploy", "cannot tell"]
Relation = Literal[">", "<="]
DEPLOY, TRIAL, REFUSE, UNKNOWN = "deploy", "worth a trial", "do not deploy", "cannot tell"


@dataclasses.dataclass(frozen=True)
class Clause:
    """One condition of the rule, with the numbers on which it was decided.

    Attributes:
        name: Subject of the clause: ``"return"``, a cost channel or ``"trips"``.
        statistic: Description of the estimated quantity.
        value: Point estimate.
        low: Lower end of its interval.
        high: Upper end.
        bound: Number to compare: an end of the interval or a largest value.
        relation: Required relation to the limit.
        limit: Number to compare with.
        unit: Unit of all these numbers.
        holds: Whether the relation holds.
        sentence: The clause as a sentence, with its numbers.
    """

    name: str
    statistic: str
    value: float
    low: float
    high: float
    bound: float
    relation: Relation
    limit: float
    unit: str
    holds: bool
    sentence: str

    @property
    def is_share(self) -> bool:
        """Whether its numbers are shares of episodes or steps, which are written in percent."""
        return self.unit == "1" and self.statistic.startswith(("episodes that ", "steps in which "))

    @classmethod
    def of(
        cls,
        name: str,
        statistic: str,
        ends: Estimate | float,
        relation: Relation,
        limit: float,
        unit: str,
        sentence: Callable[["Clause"], str],
        *,
        bound: float | None = None,
    ) -> "Clause":
        """A clause with its decision and its sentence.

        Args:
            name: Subject of the clause.
            statistic: Description of the estimated quantity.
            ends: The estimate, or a number without an interval.
            relation: Required relation to the limit.
            limit: Number to compare with.
            unit: Unit of all numbers.
            sentence: Makes the sentence of the decided clause.
            bound: Number to compare; by default the unfavourable end of the interval.

        Returns:
            The clause. A bound or a limit that is not a number fails it.
        """
        estimate = ends if isinstance(ends, Estimate) else Estimate(ends, ends, ends)
        value, low, high = estimate.value, estimate.low, estimate.high
        if bound is None:
            bound = low if relation == ">" else high
        # A comparison with NaN is false, whichever relation is required.
        holds = bool(bound > limit if relation == ">" else bound <= limit)
        numbers = (value, low, high, bound, relation, limit, unit)
        clause = cls(name, statistic, *numbers, holds, sentence="")
        return dataclasses.replace(clause, sentence=sentence(clause))


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What may be done with the guarded candidate, and why.

    Attributes:
        answer: ``"deploy"``, ``"worth a trial"``, ``"do not deploy"`` or ``"cannot tell"``.
        sentence: The verdict in one sentence.
        candidate: The policy that it applies to: only this seed, with its guard.
        reference: The controller it was compared with; empty if there was none.
        rule: The rule as text.
        clauses: Every condition, whether it holds or not.
        reason: Reason for "cannot tell"; empty otherwise.
    """

    answer: Answer
    sentence: str
    candidate: str
    reference: str
    rule: str
    clauses: tuple[Clause, ...]
    reason: str

    def __repr__(self) -> str:
        """The answer, its sentence, and a line for every clause."""
        lines = [f"{self.answer.upper()}  {parts(self)[0]}", *clause_lines(self)]
        return "\n".join([*lines, *([f"  {closing(self)}"] if closing(self) else [])])


def clause_lines(verdict: Verdict) -> list[str]:
    """One line for each clause, whether it holds or not."""
    marks = {True: "ok  ", False: "FAIL"}
    return [f"  {marks[bool(clause.holds)]} {clause.sentence}" for clause in verdict.clauses]


def closing(verdict: Verdict) -> str:
    """Closing lines of a verdict on a log, after its clauses: the trial, or what is missing.

    Empty for a verdict on a plant, and if there is nothing to add.
    """
    on_log = any(clause.name == "model" for clause in verdict.clauses)
    if verdict.answer == DEPLOY or (verdict.answer == REFUSE and not on_log):
        return ""
    return parts(verdict)[2]


def parts(verdict: Verdict) -> tuple[str, list[str], str]:
    """The sentence of a verdict in three parts, to be read as a list.

    Returns:
        What may be done, the sentences of the clauses that decided it (those that do not hold, or
        all of them), and what follows them. Without clauses, the whole sentence and nothing more.
    """
    deciding = [clause for clause in verdict.clauses if not clause.holds] or verdict.clauses
    reasons = [clause.sentence for clause in deciding]
    opening, listed, rest = verdict.sentence.partition(f": {'; '.join(reasons)}.")
    if not reasons or not listed:
        return verdict.sentence, [], ""
    return opening, reasons, rest.strip()


VERSION = 1


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    """The content of ``verdict.json``: the fields of the verdict, and the candidate's artefact."""
    artefact = policy_file(verdict.candidate)
    return {**head("verdict", VERSION), **to_plain(verdict), "artefact": artefact}


def verdict_from_json(content: dict[str, Any]) -> Verdict:
    """Inverse of :func:`verdict_to_json`, without its head."""
    return from_plain(Verdict, {k: v for k, v in content.items() if k != "artefact"})


def write_verdict(run: str | os.PathLike[str], verdict: Verdict) -> None:
    """Writes ``verdict.json`` into a run directory, completely or not at all.

    Args:
        run: The directory; it already contains the evaluation, so that no verdict exists alone.
        verdict: Verdict on the evaluation.

    Raises:
        OSError: If the file cannot be written.
    """
    write_json(Path(run) / VERDICT, verdict_to_json(verdict))


def read_verdict(run: str | os.PathLike[str]) -> Verdict:
    """The verdict of a run.

    Raises:
        InputError: If the file is missing, damaged or of another version.
    """
    path = Path(run) / VERDICT
    return decode(path, verdict_from_json, read_json(path, "verdict", VERSION))
