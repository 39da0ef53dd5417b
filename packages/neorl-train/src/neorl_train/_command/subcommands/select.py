"""``neorl-train select RUN_OR_LOG``: chooses among candidates without using the plant."""

import contextlib
import dataclasses
from pathlib import Path

from neorl_core import InputError
from neorl_core.infrastructure.command_line import parse_options
from neorl_train._command.results import print_json
from neorl_train._command.run_argument import named_run, take_flag
from neorl_train._process.progress import only_stage
from neorl_train.choosing import (
    SelectOptions,
    lines,
    select_candidates,
    selection_to_json,
    write_selection,
)

USAGE = """neorl-train select RUN_OR_LOG [--OPTION VALUE ...]

Estimates every candidate from the log alone and chooses by a fixed rule: replayed episodes of a
plant model, fitted Q evaluation by an ensemble of networks, and importance sampling, with
intervals, on one page and as JSON.
The page also shows the distribution of each return, its worst tenth, and a correction by the
nearest logged rows; these are for information.
Candidates are the policies of the run, the controllers of a built-in plant, those that the run
identified from the log, and --policies. The incumbent is the plant's ordinary controller (if that
recorded none of the log, the one that recorded most of it), or the controller that the run retuned
or names as evaluation.incumbent. After a run that retuned a controller, the model learns
from the training episodes of that run and judges on the same episodes, so that both answers agree.
If a log does not say who recorded it, name what runs today with --incumbent: the model must then
reproduce its return. Without a name, it must pass the checks of `neorl-train model`.

examples:
  neorl-train select runs/0001
  neorl-train select runs/0001 --incumbent PI --output choice.html
  neorl-train select runs/0001 --json        (print JSON in place of text)
  neorl-train select plant.h5 --policies old.safetensors new.safetensors --incumbent old
"""


def command(arguments: list[str]) -> None:
    """``neorl-train select RUN_OR_LOG [--OPTION VALUE ...]``."""
    given, as_json = take_flag("--json", arguments)
    name = given.pop(0) if given and not given[0].startswith("-") else ""
    options = parse_options(SelectOptions, given, program="neorl-train select RUN_OR_LOG")
    if not name:
        raise InputError(
            "select takes the directory of a run or a log; for example "
            "`neorl-train select runs/0001`"
        )
    from neorl_train._job.plant_model import log_context, policies_beside

    path = named_run(name)
    log = log_context(path)
    dataset, options = log.for_run_options(options)
    policies = policies_beside(path, options.policies, dataset.spec)
    if log.incumbent:
        options = dataclasses.replace(options, incumbent=options.incumbent or log.incumbent)
        candidates = {log.incumbent: log.controllers[log.incumbent], **log.controllers, **policies}
    else:
        candidates = {**policies, **log.controllers}
    text = f"learning the plant from the log and estimating {len(candidates)} candidates"
    # Fewer are refused at once.
    with only_stage(text) if len(candidates) > 1 else contextlib.nullcontext():
        selection = select_candidates(dataset, path.name, candidates, options, log.facts)
    page, json_path = write_selection(selection, Path(options.output))
    if as_json:
        print_json("selection", {**selection_to_json(selection), "page": str(page.absolute())})
        return
    for note in log.notes:
        print(f"note: {note}")
    if not options.incumbent:
        print(
            f"note: the controller that recorded this log is not known, so {selection.incumbent} "
            "is taken as what runs today; name another candidate with --incumbent"
        )
    for line in lines(selection):
        print(line)
    print(selection.sentence)
    print(f"page: {page}, numbers: {json_path}")
