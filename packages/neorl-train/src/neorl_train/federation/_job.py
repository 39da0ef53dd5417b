"""A federation from start to finish: logs, rounds, one run per site, and the comparison."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neorl_core import InputError, Policy
from neorl_core.infrastructure import check_head, head, write_json, write_text
from neorl_train._errors import InterruptedRunError
from neorl_train._job.evaluation import is_complete
from neorl_train._job.job import continue_run, first_record
from neorl_train._job.log_stage import read_experience
from neorl_train._job.resolution import reopen, resolve
from neorl_train._job.resolved_run import ResolvedRun, Session
from neorl_train._process.control import StopSignal
from neorl_train._process.progress import Reporter, Timings
from neorl_train.configuration._sections import (
    config_hash,
    config_to_dict,
    dump_toml,
    hyperparameters,
)
from neorl_train.configuration._validation import configure, validate
from neorl_train.data._training_data import TrainingData
from neorl_train.federation._engine import federate, federation_checkpoints
from neorl_train.federation._exchange import RoundRecord
from neorl_train.federation._messages import Introduction, check_introductions
from neorl_train.federation._results import federation_results
from neorl_train.federation._site_run import FederatedSite
from neorl_train.federation._sites import FederationPlan
from neorl_train.runs._directory import RunDirectory, file_lock, fill_run, numbered_runs
from neorl_train.runs._records import Records, read_records

PLAN, ROUNDS, SITES, RESULTS = "federation.toml", "rounds.jsonl", "sites", "federation.json"
VERSION = 1


def new_federation(plan: FederationPlan, file: str, reporter: Reporter) -> Path:
    """Creates the numbered folder of a federation after checking everything that can be checked.

    It contains one run directory per site; after an error nothing is left behind.
    """
    complete = {}
    for name, config in plan.sites.items():
        try:
            validate(config)
            complete[name] = resolve(config)
        except InputError as error:
            raise InputError(f"site {name}: {error}") from error
    specs = {name: site.run.spec for name, site in complete.items()}
    check_introductions([Introduction(name, 1, spec, None) for name, spec in specs.items()])
    plan.directory.mkdir(parents=True, exist_ok=True)
    number = 1 + max((int(path.name) for path in numbered_runs(plan.directory)), default=0)
    folder = plan.directory.absolute() / f"{number:04d}"
    folder.mkdir()
    for name, site in complete.items():
        path = folder / SITES / name
        path.mkdir(parents=True)
        config = site.run.config
        output = dataclasses.replace(config.output, directory=str(folder.parent), tracking=False)
        config = dataclasses.replace(config, output=output)
        record = {**first_record(site), "federation": str(folder), "site": name}
        fill_run(path, dump_toml(config_to_dict(config)), record)
        for note in site.notes:
            reporter.print_line(f"site {name}: {note}")
    write_text(folder / PLAN, file)
    reporter.print_line(f"federation {folder}")
    return folder


def run_federation(folder: Path, plan: FederationPlan, reporter: Reporter, timings: Timings) -> str:
    """Carries out the rest of a federation; a second call continues it with identical bits.

    Returns the comparison as text; after an error completed work is kept.
    """
    runs = {name: _site_run(folder, name) for name in plan.sites}
    with file_lock(folder / "lock"), StopSignal(reporter.print_line) as stop:
        try:
            data = _logs(runs, reporter, stop, timings)
            policies = _train(folder, plan, runs, data, reporter, stop, timings)
        except InterruptedRunError as error:
            raise InterruptedRunError(error.signal_number, continue_line(folder)) from None
    for name, (run, site) in runs.items():
        site_policies = {seed: of_seed[name] for seed, of_seed in policies.items()}
        kind = FederatedSite(site_policies)
        if is_complete(run):
            continue
        reporter.print_line(f"site {name}: {run.path}")
        try:
            timings_of_site = Timings()  # a site's record has only its own
            continue_run(dataclasses.replace(site, kind=kind), run, reporter, timings_of_site)
        except InterruptedRunError as error:
            raise InterruptedRunError(error.signal_number, continue_line(folder)) from None
    sites = {name: run for name, (run, _) in runs.items()}
    text, document = federation_results(plan, sites, list(read_records(folder / ROUNDS)))
    write_json(folder / RESULTS, {**head("federation", VERSION), **document})
    return text


def continue_line(folder: Path) -> str:
    """The command that continues a federation."""
    return f"neorl-train federate {folder}"


def read_results(folder: Path) -> dict[str, Any]:
    """Reads ``federation.json``."""
    path = folder / RESULTS
    try:
        return check_head(json.loads(path.read_text("utf-8")), "federation", VERSION, str(path))
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read {path}: {error}; continue with `{continue_line(folder)}`"
        ) from None


def _site_run(folder: Path, name: str) -> tuple[RunDirectory, ResolvedRun]:
    run = RunDirectory(folder / SITES / name)
    record = run.record()
    config = configure(run.config)
    if record["config_hash"] != config_hash(config):
        raise InputError(
            f"{run.config} was changed since the federation began; restore the file, or start a "
            "new federation with the changed one"
        )
    return run, reopen(config)


def _logs(
    runs: Mapping[str, tuple[RunDirectory, ResolvedRun]],
    reporter: Reporter,
    stop: StopSignal,
    timings: Timings,
) -> dict[str, TrainingData]:
    data = {}
    for name, (directory, run) in runs.items():
        session = Session(directory, reporter, stop, timings)
        reporter.print_line(f"site {name}")
        try:
            experience = read_experience(run, session)
        except InputError as error:
            raise InputError(f"site {name}: {error}") from error
        if experience is None or not isinstance(experience.training, TrainingData):
            raise InputError(
                f"site {name}: sites train on a log in memory; set data.steps above 0, or raise "
                "data.memory"
            )
        data[name] = experience.training
    return data


def _train(
    folder: Path,
    plan: FederationPlan,
    runs: Mapping[str, tuple[RunDirectory, ResolvedRun]],
    data: Mapping[str, TrainingData],
    reporter: Reporter,
    stop: StopSignal,
    timings: Timings,
) -> dict[int, dict[str, Policy]]:
    """The policies of every site after all rounds, by seed."""
    config = next(iter(runs.values()))[1].config
    hashes = {name: run.record()["dataset"]["content_hash"] for name, (run, _) in runs.items()}
    records, policies = Records(folder / ROUNDS), {}
    try:
        for seed in plan.seeds:
            identity = {
                "plan": json.loads(json.dumps(_plan_identity(plan))), "logs": hashes, "seed": seed,
            }  # fmt: skip
            checkpoints = federation_checkpoints(
                folder / "checkpoints" / f"seed-{seed}", identity, print_line=reporter.print_line
            )
            # Lines after the newest checkpoint will be written again.
            newest = max(checkpoints.steps(), default=0)
            records.keep(lambda line, s=seed, n=newest: line["seed"] != s or line["round"] < n)
            round_watcher = _RoundWatcher(plan, seed, records, reporter, newest)
            with timings.stage(f"rounds of seed {seed}"), stop.later():
                result = federate(
                    hyperparameters(config, plan.algorithm), data, plan.settings, seed=seed,
                    faults=plan.faults, checkpoints=checkpoints, watch=round_watcher,
                    print_line=reporter.print_line, stop=stop.requested,
                )  # fmt: skip
            reporter.end()
            stop.check()
            policies[seed] = result.policies
    finally:
        records.close()
    return policies


def _plan_identity(plan: FederationPlan) -> dict[str, Any]:
    plain = plan.to_dict()
    for site in plain["sites"].values():
        for section in ("output", "checkpoints", "evaluation"):
            site.pop(section)
    return plain


class _RoundWatcher:
    def __init__(
        self, plan: FederationPlan, seed: int, records: Records, reporter: Reporter, done: int
    ) -> None:
        self._seed, self._records, self._reporter = seed, records, reporter
        rounds = plan.settings.federation.rounds
        name = f"{plan.algorithm} on {len(plan.sites)} sites, seed {seed}"
        reporter.stage(name, total=rounds, done=done, unit="rounds/s")

    def __call__(self, record: RoundRecord) -> None:
        self._records.write({"seed": self._seed, **record.line()})
        self._records.sync()
        answered = len(record.answered)
        text = f"{answered} of {len(record.outcomes)} answered, change {record.change:.3g}"
        self._reporter.update(record.round + 1, text)
