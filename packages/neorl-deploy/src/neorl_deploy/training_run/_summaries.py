"""Summarises a run's larger documents for the manifest."""

import math
from typing import Any

LONGEST_LIST = 64
"""Longer lists (raw episodes) stay in ``evaluation.json`` and out of the manifest."""

SUMMARISED = ("environment", "reason", "reward_unit", "level", "n_starts", "candidate", "reference")
"""Fields of the result tables that are repeated, in addition to some of their rows."""


def evaluation_summary(evaluation: dict[str, Any]) -> dict[str, Any]:
    """Summary of ``evaluation.json``: candidate, reference and log, with intervals.

    Of an unknown layout only the long lists are removed.
    """
    tables = evaluation.get("tables")
    if not isinstance(tables, dict) or not isinstance(tables.get("rows"), list):
        return trim(evaluation)
    named = {tables.get("candidate"), tables.get("reference")}
    return {
        "units": evaluation.get("units"),
        **{name: tables.get(name) for name in SUMMARISED},
        "rows": [
            row for row in tables["rows"] if row.get("name") in named or row.get("role") == "log"
        ],
    }


def finite(value: Any) -> Any:
    """JSON with NaN and infinities replaced by ``null``."""
    if isinstance(value, dict):
        return {name: finite(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [finite(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def trim(value: Any) -> Any:
    """A larger document without its long lists, for the manifest."""
    if isinstance(value, dict):
        return {name: trim(entry) for name, entry in value.items()}
    if isinstance(value, list):
        if len(value) > LONGEST_LIST:
            return f"{len(value)} entries"
        return [trim(entry) for entry in value]
    return value


def data_hash(record: dict[str, Any]) -> str | None:
    """The content hash of the log that a run learned from, if its record has one."""
    dataset = record.get("dataset")
    content_hash = dataset.get("content_hash") if isinstance(dataset, dict) else None
    return content_hash if isinstance(content_hash, str) else None


def dataset_file(record: Any) -> str | None:
    """The file that a run's record names as its log; ``None`` if it names none."""
    dataset = record.get("dataset") if isinstance(record, dict) else None
    file = dataset.get("file") if isinstance(dataset, dict) else None
    return file if isinstance(file, str) else None
