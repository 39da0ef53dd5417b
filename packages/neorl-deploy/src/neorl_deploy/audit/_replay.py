"""Recomputes the decisions in an audit log from the same inputs, in the same form."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neorl_deploy._errors import BundleError
from neorl_deploy.audit._chain import AuditError, records
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.runtime._decision import no_decision
from neorl_deploy.runtime._runtime import Runtime


class DecisionReplay(NamedTuple):
    """Result of recomputing decisions.

    Attributes:
        decisions: Number of decisions recomputed.
        differ: Numbers of the records whose decision differed; the first hundred.
    """

    decisions: int
    differ: tuple[int, ...]


def replay_decisions(
    folder: Path, bundle: Bundle, *, runtime: Runtime | None = None
) -> DecisionReplay:
    """Recomputes every recorded decision and compares the bits.

    On the machine that made the decisions they are identical; on another machine the compiler may
    round differently.

    Args:
        folder: The folder of the log, verified.
        bundle: The bundle that made the decisions.
        runtime: A runtime of that bundle to use instead of a new one; its state is lost.

    Returns:
        The number of decisions, and those that differ.

    Raises:
        AuditError: If the log belongs to another bundle, or a record lacks an input of a decision.
    """
    acting = runtime
    count, differ = 0, []
    for record, _ in records(folder):
        where = f"{folder}, record {record['n']}"
        if record["kind"] == "file":
            if record["bundle"] != f"sha256:{bundle.digest}":
                raise AuditError(
                    f"{where}: the decisions were made by another bundle, {record['bundle']}"
                )
            acting = _acting(bundle, record.get("form", "stablehlo"), acting, where)
        if record["kind"] != "cycle" or acting is None:
            continue
        try:
            if record["carry"] is not None:
                words = base64.b64decode(record["carry"], validate=True)
                acting.restore_words(np.frombuffer(words, "<u4"))
            # JSON holds no infinity: the age of a value that never came is recorded as null.
            ages = np.nan_to_num(_numbers(record["ages"]), nan=np.inf)
            try:
                again = acting.step(
                    _numbers(record["obs"]),
                    _numbers(record["received"]),
                    ages=ages,
                    taking_over=record["taking_over"],
                )
            except BundleError:
                again = no_decision(bundle.manifest)
            recorded = np.array(record["action"], np.float32)
            same = recorded.tobytes() == again.action.tobytes()
            same &= [record["flags"], record["alarms"]] == [again.flags, again.alarms]
        except (KeyError, ValueError, TypeError) as error:
            raise AuditError(f"{where} cannot be computed again: {error!r}") from error
        count += 1
        if not same and len(differ) < 100:
            differ.append(record["n"])
    return DecisionReplay(count, tuple(differ))


def _acting(bundle: Bundle, form: Any, acting: Runtime | None, where: str) -> Runtime:
    """A runtime of the form that made the decisions; another form may round differently."""
    if acting is not None and acting.form == form:
        return acting
    try:
        return Runtime(bundle, form)
    except ValueError as error:
        raise AuditError(f"{where}: {error}") from error


def _numbers(values: list[Any]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], np.float64)
