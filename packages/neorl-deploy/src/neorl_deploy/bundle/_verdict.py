"""Checks that a verdict is consistent: its answer, its clauses and their numbers."""

import math
from collections.abc import Mapping
from typing import Any

DEPLOY, REFUSE, UNKNOWN = "deploy", "do not deploy", "cannot tell"
TRIAL = "worth a trial"
ANSWERS = (DEPLOY, TRIAL, REFUSE, UNKNOWN)
RELATIONS = (">", "<=")


def contradiction(verdict: Mapping[str, Any]) -> str:
    """Describes how a verdict contradicts itself; empty if it does not.

    "deploy" and "worth a trial" need at least one clause, and all must hold; "do not deploy" needs
    a clause that does not hold; "cannot tell" may have any. A clause must be marked as holding
    exactly if its bound satisfies the stated relation to its limit. The sentences are written for
    people and are not parsed.
    """
    answer, clauses = verdict.get("answer"), verdict.get("clauses")
    if not isinstance(clauses, list):
        return f"its clauses are {clauses!r}, expected a list"
    failed = []
    for number, clause in enumerate(clauses, start=1):
        fault = _clause_fault(clause, number)
        if fault:
            return fault
        if not clause["holds"]:
            failed.append(clause["name"])
    if answer in (DEPLOY, TRIAL) and failed:
        return f"the verdict is {answer!r} and its clause {failed[0]!r} does not hold"
    if answer in (DEPLOY, TRIAL) and not clauses:
        return f"the verdict is {answer!r} and no clause says why"
    if answer == REFUSE and not failed:
        return f"the verdict is {answer!r} and {'every' if clauses else 'no'} clause " + (
            "holds" if clauses else "says why"
        )
    return ""


def _clause_fault(clause: Any, number: int) -> str:
    if not isinstance(clause, Mapping) or not isinstance(clause.get("name"), str):
        return f"its clause {number} is not an object with a name"
    name, relation, holds = clause["name"], clause.get("relation"), clause.get("holds")
    try:
        bound, limit = _number(clause.get("bound")), _number(clause.get("limit"))
    except TypeError as error:
        return f"its clause {name!r} compares {error}, which is not a number"
    if relation not in RELATIONS or not isinstance(holds, bool):
        return (
            f"its clause {name!r} says {relation!r} and holds = {holds!r}; expected one of "
            f"{', '.join(RELATIONS)} and true or false"
        )
    # A comparison with NaN is false, so such a clause cannot hold.
    if holds != (bound > limit if relation == ">" else bound <= limit):
        return (
            f"its clause {name!r} says holds = {holds}, and {bound:g} {relation} {limit:g} says "
            "otherwise"
        )
    return ""


def _number(value: Any) -> float:
    """A number from a result: JSON has no NaN (stored as ``null``) and no infinity (as text)."""
    if value is None:
        return math.nan
    if value in ("inf", "-inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(repr(value))
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
