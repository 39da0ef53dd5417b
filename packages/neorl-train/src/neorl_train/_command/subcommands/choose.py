"""``neorl-train choose RUN_OR_LOG``: chooses among candidates without using the plant."""

import dataclasses
from pathlib import Path

from neorl_core import InputError
from neorl_train._command.shared import JsonFlag, named_run, parse_named, print_json
from neorl_train._command.subcommands.run import part_of
from neorl_train._process.progress import only_stage
from neorl_train.choosing import ChooseOptions, choose_candidate, lines, write_choice

USAGE = """neorl-train choose RUN_OR_LOG [--OPTION VALUE ...]

Chooses among candidates from the log alone, by a fixed rule, on one page and as JSON. The page has
three parts; --show names those that you want:
  model   whether a plant model, learned from three quarters of the log, may be used: it predicts
          the other episodes, and controllers that were left out of a further fit
  values  what every candidate is worth, with intervals: replayed episodes of that model, fitted Q
          evaluation by an ensemble of networks, and importance sampling
  risk    the costs of every candidate beside the limits, by the same estimators, and how likely a
          violation within the next steps is, by a safety critic
Nothing is preferred to today's controller with a model that may not be used.
Candidates are the policies of the run, the controllers of a built-in plant, those that the run
identified from the log, and --policies. Today's controller is the plant's first tuning (if that
recorded none of the log, the one that recorded most of it), or the controller that the run retuned
or names as evaluation.incumbent. After a run that retuned a controller, the model learns
from the training episodes of that run and judges on the same episodes, so that both answers agree;
the check "model" is the clause of its verdict.
If a log does not say who recorded it, name today's controller with --incumbent: the model must then
reproduce its return. Without a name, its predictions from the logged actions decide.

examples:
  neorl-train choose runs/0001
  neorl-train choose runs/0001 --incumbent PI --output page.html
  neorl-train choose plant.h5 --show model --exogenous feed_temperature demand
  neorl-train choose plant.h5 --policies old.safetensors new.safetensors --incumbent old
  neorl-train choose runs/0001 --json
"""


@dataclasses.dataclass(frozen=True)
class CommandOptions(JsonFlag, ChooseOptions):
    """The options of ``choose``."""


def command(arguments: list[str]) -> None:
    """``neorl-train choose RUN_OR_LOG [--OPTION VALUE ...]``."""
    name, given = parse_named(CommandOptions, arguments, "neorl-train choose RUN_OR_LOG")
    if not name:
        raise InputError(
            "choose takes the directory of a run or a log; for example "
            "`neorl-train choose runs/0001`"
        )
    options = part_of(given, ChooseOptions())
    options.validate()
    from neorl_train._job.plant_model import log_context, policies_beside

    path = named_run(name)
    log = log_context(path)
    dataset, options = log.for_run_options(options)
    candidates = {**policies_beside(path, options.policies, dataset.spec), **log.controllers}
    known = options.incumbent or log.incumbent
    shown = ", ".join(options.show)
    text = f"learning the plant from the log: {shown} of {len(candidates)} candidates"
    with only_stage(text):
        choice = choose_candidate(dataset, path.name, candidates, options, log.facts, known)
    page = Path(options.output)
    json_path, content = write_choice(page, choice, options.show)
    if given.json:
        print_json("choice", {**content, "page": str(page.absolute())})
        return
    for note in (*log.notes, *choice.notes):
        print(f"note: {note}")
    for line in lines(choice):
        print(line)
    print(f"page: {page}, numbers: {json_path}")
