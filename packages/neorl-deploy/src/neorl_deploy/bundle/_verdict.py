"""Whether a verdict says one thing: its answer, its sentence and its clauses."""

import sys
from collections.abc import Mapping
from typing import Any

DEPLOY, REFUSE, UNKNOWN = "deploy", "do not deploy", "cannot tell"
VERDICTS = (DEPLOY, REFUSE, UNKNOWN)


def contradiction(verdict: Mapping[str, Any]) -> str:
    """What in a verdict speaks against its answer.

    Only what is there is held against it: a sentence in other words than those of a run, clauses
    without numbers or none at all contradict nothing.

    Args:
        verdict: The content of ``verdict.json``; its answer is one of ``VERDICTS``.

    Returns:
        The contradiction in words; empty where there is none.
    """
    answer = verdict.get("verdict")
    stated = _stated(verdict.get("sentence"))
    if stated not in ("", answer):
        return f"the verdict is {answer!r} and its sentence says {stated!r}"
    clauses = verdict.get("clauses")
    clauses = [c for c in clauses if isinstance(c, dict)] if isinstance(clauses, list) else []
    for clause in clauses:
        if not _fits_its_numbers(clause):
            return (
                f"the clause {clause.get('name')!r} says holds = {clause['holds']}, and "
                f"{clause['bound']:g} {clause['relation']} {clause['limit']:g} says otherwise"
            )
    failed = [str(clause.get("name")) for clause in clauses if clause.get("holds") is False]
    if answer == DEPLOY and failed:
        return f"the verdict is {answer!r} and its clause {failed[0]!r} does not hold"
    if answer == REFUSE and clauses and all(clause.get("holds") is True for clause in clauses):
        return f"the verdict is {answer!r} and every clause holds"
    return ""


def _stated(sentence: Any) -> str:
    """The answer that a sentence gives, in the words in which runs write it."""
    if not isinstance(sentence, str):
        return ""
    if sentence.startswith("Cannot tell"):
        return UNKNOWN
    if "should not be deployed" in sentence:
        return REFUSE
    return DEPLOY if "may be deployed" in sentence else ""


def _fits_its_numbers(clause: Mapping[str, Any]) -> bool:
    bound: Any = clause.get("bound")
    limit: Any = clause.get("limit")
    relation = clause.get("relation")
    numbers = all(_is_finite(value) for value in (bound, limit))
    if not numbers or relation not in (">", "<=") or not isinstance(clause.get("holds"), bool):
        return True
    return clause["holds"] == (bound > limit if relation == ">" else bound <= limit)


def _is_finite(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) <= sys.float_info.max
