"""``neorl-train model``: learns a plant model from a log and reports whether it is usable."""

from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure.command_line import parse_options
from neorl_train._command.results import print_json
from neorl_train._command.run_argument import take_flag
from neorl_train._process.progress import only_stage
from neorl_train.choosing import (
    ModelOptions,
    PlantModelCheck,
    check_plant_model,
    mark,
    write_model_page,
)

INCUMBENT_UNKNOWN = (
    "the controller that runs today is not known, so it was not checked whether the model "
    "reproduces it, and only the predictions from the logged actions decide; a run with "
    "retuning.controller names the controller, and the clause 'model' of its verdict is that check"
)
USAGE = """neorl-train model RUN_OR_LOG [--OPTION VALUE ...]

Learns a model of the plant from three quarters of a log, predicts the other episodes from their
first row and the logged actions, and writes a page that shows whether the model may be used.
For a run, the model is the one that the run learned, and the check "model" is the clause of its
verdict.

examples:
  neorl-train model plant.h5
  neorl-train model plant.h5 --exogenous feed_temperature demand --output plant-model.html
  neorl-train model runs/0001 --json         (print JSON in place of text)
"""


def command(arguments: list[str]) -> None:
    """``neorl-train model RUN_OR_LOG [--OPTION VALUE ...]``."""
    words, as_json = take_flag("--json", arguments)
    name = words.pop(0) if words and not words[0].startswith("-") else ""
    options = parse_options(ModelOptions, words, program="neorl-train model RUN_OR_LOG")
    if not name:
        raise InputError(
            "model takes a log or the directory of a run; for example `neorl-train model plant.h5`"
        )
    from neorl_train._job.plant_model import log_context

    log = log_context(Path(name))
    dataset, options = log.for_run_options(options)
    with only_stage("learning the plant from three quarters of the log"):
        check = check_plant_model(
            dataset, Path(name).name, options, log.facts, log.controllers, log.incumbent
        )
    page = write_model_page(check, Path(options.output))
    if as_json:
        checks = [
            {"name": c.name, "holds": bool(c.holds), "sentence": c.sentence} for c in check.checks
        ]
        content = {"checks": checks, "held_out_modes": _held_out_rows(check)}
        content |= {"sentence": check.sentence, "page": str(page.absolute())}
        print_json("plant-model-check", content)
        return
    for note in log.notes:
        print(f"note: {note}")
    if not log.incumbent:
        print(f"note: {INCUMBENT_UNKNOWN}")
    for result in check.checks:
        print(f"{mark(result)} {result.name}: {result.sentence}")
    print(check.sentence)
    print(f"page: {page}")


def _held_out_rows(check: PlantModelCheck) -> list[dict[str, Any]]:
    """The controllers that were left out of the fit."""
    from neorl_train.judging._results import to_plain

    return to_plain(
        [
            {
                "name": mode.name,
                "predicted": mode.predicted,
                "expected": mode.outcome.expected,
                "standard_error": mode.chance,
                "difference_between_modes": mode.spread,
                "error": mode.share,
                "outside": mode.outside,
            }
            for mode in check.held_out
        ]
    )
