"""``neorl-train baselines PLANT|LOG``: evaluates the classical controllers."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure import setting
from neorl_train._command.shared import parse_named
from neorl_train.configuration._classical import ClassicalConfig

USAGE = """neorl-train baselines PLANT_OR_LOG [--OPTION VALUE ...]

For a plant: returns, costs and trips of its tunings, of uniform random actions and of the
controllers that record a log, on common starts, in the tables of `neorl-train benchmark`. Results
are stored in baselines/.baselines and reused as long as the plant's code and versions are
the same.
For a log: its own episodes and controllers fitted on it; these run on the plant if it is built in;
otherwise their actions are compared with the logged ones on held-out episodes.

examples:
  neorl-train baselines CSTR-v0
  neorl-train baselines CSTR-v0 --starts 1000 --quality expert --output table.md
  neorl-train baselines log.h5 --controllers pid lqg mpc
  neorl-train baselines log.h5 --controllers lqg --classical.manipulated level valve \\
      --classical.setpoint level 1.2
  neorl-train baselines plant.h5 --json
"""

SUFFIXES = (".txt", ".md", ".tex", ".csv", ".json")


@dataclasses.dataclass(frozen=True)
class BaselineOptions:
    """Starts of the evaluation, and the files for its results.

    Attributes:
        starts: Number of paired episodes.
        seed: Seed of the starts; the default is the one used by sweeps and benchmarks.
        level: Confidence level of all intervals.
        quality: Quality of a plant's log whose behaviour is included: random, medium, mixed or
            expert.
        controllers: Classical controllers to fit on a log, such as pid, lqg and mpc.
        classical: Channels that they control, and their settings.
        output: File to write: .txt, .md, .tex, .csv or .json; empty writes none.
        directory: Folder in which results are kept.
        json: Print JSON instead of the table.
    """

    starts: int = setting(128, low=2)
    seed: int = setting(1, low=0)
    level: float = setting(0.95, above=0.5, below=1)
    quality: str = "mixed"
    controllers: tuple[str, ...] = ()
    classical: ClassicalConfig = dataclasses.field(default_factory=ClassicalConfig)
    output: str = ""
    directory: str = "baselines"
    json: bool = False


def command(arguments: list[str]) -> None:
    """``neorl-train baselines PLANT_OR_LOG [--OPTION VALUE ...]``."""
    name, options = parse_named(BaselineOptions, arguments, "neorl-train baselines PLANT_OR_LOG")
    if not name:
        raise InputError(
            "baselines takes a plant or a log; for example `neorl-train baselines CSTR-v0`"
        )
    _check(options)
    from neorl_envs.plants import PLANTS

    if name in PLANTS:
        tables, rows, notes = _of_plant(name, options)
    else:
        tables, rows, notes = _of_log(Path(name), options)
    _print(tables, rows, notes, options)


def _check(options: BaselineOptions) -> None:
    from neorl_core.infrastructure import unknown_name
    from neorl_envs.recording import QUALITIES
    from neorl_train.studies._tables import check_output

    if options.quality not in QUALITIES:
        raise unknown_name("quality of a log", options.quality, QUALITIES)
    if options.output:
        check_output(Path(options.output), SUFFIXES)


def _of_plant(name: str, options: BaselineOptions) -> tuple[Any, Any, list[str]]:
    """Table, rows and accompanying notes for a plant."""
    from neorl_train.studies._benchmark_run import baseline_table, plant_baselines

    if options.controllers or options.classical.controllers:
        raise InputError(
            "--controllers are fitted on a log; record one with "
            f"`neorl-envs collect {name} --out log.h5` and name it in place of the plant"
        )
    evaluation, from_cache = plant_baselines(
        name,
        Path(options.directory),
        starts=options.starts,
        seed=options.seed,
        level=options.level,
        logged=options.quality,
    )
    table, rows = baseline_table(evaluation, options.quality)
    return (
        [table],
        rows,
        [f"stored in {Path(options.directory).absolute()}"] if not from_cache else [],
    )


def _classical_section(options: BaselineOptions) -> dict[str, Any]:
    """The section ``classical`` of a run's configuration."""
    given = dataclasses.asdict(options.classical)
    return given | {"controllers": options.controllers or options.classical.controllers}


def _of_log(path: Path, options: BaselineOptions) -> tuple[Any, Any, list[str]]:
    from neorl_train.studies._benchmark_run import baseline_table, log_baselines, shadow_table

    settings = {
        "classical": _classical_section(options),
        "evaluation": {
            "starts": options.starts,
            "seed": options.seed,
            "level": options.level,
        },
    }
    evaluation, text = log_baselines(path, settings)
    if evaluation.tables.environment:
        table, rows = baseline_table(evaluation, path.name)
        return [table], rows, text
    return [shadow_table(evaluation, path.name)], evaluation, text


def _print(tables: Any, rows: Any, notes: list[str], options: BaselineOptions) -> None:
    from neorl_core.infrastructure import head, write_text
    from neorl_train.judging._results import to_plain
    from neorl_train.studies._tables import csv_text, render, rows_csv

    simulated = isinstance(rows, tuple)
    plain = {"rows": to_plain(rows)} if simulated else to_plain(rows)
    content = json.dumps({**head("baselines", 1), **plain, "notes": notes}, indent=1)
    print(content if options.json else "\n".join([render(tables, ".txt"), *notes]))
    if not options.output:
        return
    path = Path(options.output)
    if path.suffix == ".json":
        text = content + "\n"
    elif path.suffix == ".csv":
        text = rows_csv(rows) if simulated else csv_text(tables[0].cells[0], tables[0].cells[1:])
    else:
        text = render(tables, path.suffix)
    write_text(path, text)
