"""Writes a safety report to disk: a page, figures and the numbers."""

import os
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure import head, replacing, write_json, write_text
from neorl_train.judging._json import to_plain
from neorl_train.judging._safety_findings import WITH, Assessment
from neorl_train.pages._safety_page import page
from neorl_train.pages._safety_text import CONDITIONS, GUARANTEE, NOT_CLAIMED, headline, scope
from neorl_train.pages.figures import _style
from neorl_train.pages.figures._safety import case_figure, overview

VERSION = 2
PAGE, NUMBERS, OVERVIEW = "safety.html", "safety.json", "safety.png"
DPI = 130


def assessment_to_json(assessment: Assessment) -> dict[str, Any]:
    """All numbers and descriptions as JSON, without the rows of the worst cases."""
    plain = to_plain(assessment)
    cases = [{"title": case.title, "start": case.ours.start} for case in assessment.cases]
    return {
        **head("safety-report", VERSION),
        "passed": not assessment.broken,
        "sentence": headline(assessment),
        "broken": [constraint.name for constraint in assessment.broken],
        "filter": WITH,
        **{**plain, "cases": cases},
        "scope": scope(assessment),
        "guarantee": list(GUARANTEE),
        "conditions": list(CONDITIONS),
        "not_claimed": list(NOT_CLAIMED),
    }


def write_safety_report(assessment: Assessment, directory: str | os.PathLike[str]) -> Path:
    """Writes ``safety.html``, ``safety.json``, ``safety.png`` and one figure for each worst case.

    Args:
        assessment: Result of :func:`assess_on_plant` or :func:`assess_on_log`.
        directory: Folder; created if it is missing.

    Returns:
        The path of the page.

    Raises:
        InputError: If the folder cannot be created.
        OSError: If a file cannot be written.
    """
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from error
    write_json(folder / NUMBERS, assessment_to_json(assessment))
    if _style.installed():
        _save(_style.styled(overview, assessment), folder / OVERVIEW)
        for i, case in enumerate(assessment.cases):
            _save(_style.styled(case_figure, case, assessment), folder / f"safety-case-{i + 1}.png")
    write_text(folder / PAGE, page(assessment))
    return folder / PAGE


def _save(figure: Any, path: Path) -> None:
    with replacing(path) as partial:
        figure.savefig(partial, format="png", dpi=DPI)
