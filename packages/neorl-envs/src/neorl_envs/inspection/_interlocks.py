"""What a log shows of the interlocks that its ``plant.toml`` declares."""

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from neorl_core import InputError
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.inspection._wording import figures, moment


def interlock_report(dataset: Dataset) -> dict[str, Any]:
    """Compares every declared interlock with the rows of the log.

    Returns:
        ``checked``, ``why`` not if they could not be compared, and ``entries``: for every interlock
        the numbers of rows and of episodes in which its condition holds, and for every action the
        rows in which the log contradicts it.
    """
    if not dataset.attributes.get("interlocks"):
        return {"checked": False, "why": "none is declared", "entries": []}
    if importlib.util.find_spec("polars") is None:
        return {"checked": False, "why": "the extra etl is not installed", "entries": []}
    from neorl_envs.plant_logs._declared._activity import (
        always_active,
        declared_interlocks,
        interlock_activity,
    )

    time = dataset.time
    try:
        checked = declared_interlocks(dataset)
    except InputError as error:
        return {"checked": False, "why": str(error), "entries": []}
    entries = []
    for one in interlock_activity(dataset, checked):
        entries.append(
            {
                "name": one.name,
                "sentence": one.sentence,
                "rows": one.rows,
                "active": one.active,
                "episodes": one.episodes,
                "always": always_active(one) if one.always else "",
                "contradictions": [
                    {
                        **contradiction._asdict(),
                        "start": None if time is None else float(time[contradiction.first]),
                    }
                    for contradiction in one.contradictions
                ],
            }
        )
    return {"checked": True, "entries": entries}


def interlock_lines(report: Mapping[str, Any]) -> list[str]:
    """One line for every interlock: what it does, and how often it was active."""
    section = report["interlocks"]
    if not section["checked"]:
        return [] if section["why"] == "none is declared" else [f"interlocks: {section['why']}"]
    return [
        f"interlock {one['name']}: {one['sentence']}; active in {one['active']} of {one['rows']} "
        f"rows ({one['active'] / max(one['rows'], 1):.1%}), in {one['episodes']} of "
        f"{report['episodes']} episodes"
        for one in section["entries"]
    ]


def interlock_warnings(entries: Sequence[Mapping[str, Any]], time: Any) -> list[str]:
    """Sentences on conditions that always hold, and on actions that contradict an interlock."""
    warnings = []
    for one in entries:
        if one["always"]:
            warnings.append(one["always"])
            continue
        for entry in one["contradictions"]:
            when = f"row {entry['first']}"
            if time is not None and entry["start"] is not None:
                when = moment(entry["start"], time["origin"])
            warnings.append(
                f"interlock {one['name']} ({one['sentence']}): the log contradicts it in "
                f"{entry['rows']} of {one['active']} rows in which its condition holds, first at "
                f"{when}, where {entry['action']} is {figures(entry['logged'])} "
                f"{entry['unit']} and not {figures(entry['declared'])} {entry['unit']}: check its "
                "condition, its value and their units; a tag that is measured with noise or logged "
                "late contradicts it near the threshold"
            )
    return warnings


def interlock_remarks(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on interlocks that never acted."""
    return [
        f"interlock {one['name']} was never active: what the plant does while it acts is not in "
        "the log, only that it would act is known"
        for one in entries
        if not one["active"]
    ]
