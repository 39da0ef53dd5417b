"""Decides again what an audit log says was decided, from the same inputs, in the same form."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neorl_deploy.audit._chain import AuditError, records
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.runtime._runtime import Runtime


class Replayed(NamedTuple):
    """Result of a replay.

    Attributes:
        decisions: Number of decisions made again.
        differ: Records whose decision came out otherwise, by number; the first hundred.
    """

    decisions: int
    differ: tuple[int, ...]


def replayed(folder: Path, bundle: Bundle, *, runtime: Runtime | None = None) -> Replayed:
    """Decides every recorded decision again and compares the bits.

    On the machine that decided them they are equal; on another one a compiler may round otherwise.

    Args:
        folder: The folder of the log, verified.
        bundle: The bundle that decided.
        runtime: One of that bundle, to be used in place of a new one; what it remembers is lost.

    Returns:
        How many, and which differ.

    Raises:
        AuditError: If the log is not of this bundle, or a record lacks what a decision needs.
    """
    acting = runtime
    count, differ = 0, []
    for record, _ in records(folder):
        where = f"{folder}, record {record['n']}"
        if record["kind"] == "file":
            if record["bundle"] != f"sha256:{bundle.digest}":
                raise AuditError(f"{where}: another bundle decided, {record['bundle']}")
            acting = _acting(bundle, record.get("form", "stablehlo"), acting, where)
        if record["kind"] != "cycle" or acting is None:
            continue
        try:
            if record["carry"] is not None:
                words = base64.b64decode(record["carry"], validate=True)
                acting.go_on_from(np.frombuffer(words, "<u4"))
            ages = np.nan_to_num(_numbers(record["ages"]), nan=np.inf)
            again = acting.step(_numbers(record["obs"]), _numbers(record["received"]), ages=ages)
            decided = np.array(record["action"], np.float32)
            same = decided.tobytes() == again.action.tobytes()
            same &= [record["flags"], record["alarms"]] == [again.flags, again.alarms]
        except (KeyError, ValueError, TypeError) as error:
            raise AuditError(f"{where} cannot be decided again: {error!r}") from error
        count += 1
        if not same and len(differ) < 100:
            differ.append(record["n"])
    return Replayed(count, tuple(differ))


def _acting(bundle: Bundle, form: Any, acting: Runtime | None, where: str) -> Runtime:
    """A runtime of the form that decided: another one may round otherwise."""
    if acting is not None and acting.form == form:
        return acting
    try:
        return Runtime(bundle, form)
    except ValueError as error:
        raise AuditError(f"{where}: {error}") from error


def _numbers(values: list[Any]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], np.float64)
