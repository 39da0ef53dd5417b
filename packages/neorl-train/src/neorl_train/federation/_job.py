"""A federation from start to finish: logs, rounds, one run per site, and the comparison."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from neorl_core import InputError, Policy
from neorl_core.infrastructure import head, write_json, write_text
from neorl_train._job.evaluation import is_complete
from neorl_train._job.job import continue_run, first_record
from neorl_train._job.resolution import reopen, resolve
from neorl_train._job.resolved_run import Learned, ResolvedRun, RunKind, Session, Task
from neorl_train._job.stages import read_experience
from neorl_train._process.control import InterruptedRunError, StopSignal
from neorl_train._process.progress import Reporter, Timings
from neorl_train.configuration._sections import (
    config_hash,
    config_to_dict,
    dump_toml,
    hyperparameters,
)
from neorl_train.configuration._validation import configure, validate
from neorl_train.data._experience import Experience
from neorl_train.data._training_data import TrainingData
from neorl_train.federation._engine import federate, federation_checkpoints, recorded_rounds
from neorl_train.federation._messages import Introduction, check_introductions
from neorl_train.federation._privacy import epsilon
from neorl_train.federation._retuning_job import retuning_results, searched_together
from neorl_train.federation._settings import FederationPlan
from neorl_train.judging._results import Evaluation, read_evaluation
from neorl_train.judging._verdict import read_verdict
from neorl_train.runs._directory import RunDirectory, file_lock, fill_run, numbered_runs
from neorl_train.runs._records import Records, read_records
from neorl_train.training._loop import UNWATCHED, Trained, train

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
            resolved = _together(folder, plan, runs, data, reporter, stop, timings)
        except InterruptedRunError as error:
            raise InterruptedRunError(error.signal_number, continue_line(folder)) from None
    for name, (run, _) in runs.items():
        if is_complete(run):
            continue
        reporter.print_line(f"site {name}: {run.path}")
        try:
            timings_of_site = Timings()  # a site's record has only its own
            continue_run(resolved[name], run, reporter, timings_of_site)
        except InterruptedRunError as error:
            raise InterruptedRunError(error.signal_number, continue_line(folder)) from None
    sites = {name: run for name, (run, _) in runs.items()}
    if plan.retunes:
        text, document = retuning_results(folder, plan, sites)
    else:
        text, document = federation_results(plan, sites, list(read_records(folder / ROUNDS)))
    write_json(folder / RESULTS, {**head("federation", VERSION), **document})
    return text


def _together(
    folder: Path,
    plan: FederationPlan,
    runs: Mapping[str, tuple[RunDirectory, ResolvedRun]],
    data: Mapping[str, Experience],
    reporter: Reporter,
    stop: StopSignal,
    timings: Timings,
) -> dict[str, ResolvedRun]:
    """The runs of the sites with what they found together; complete ones may be left out."""
    if plan.retunes:
        found = searched_together(
            folder, plan, runs, data, reporter, stop, timings, folder / ROUNDS
        )
        return {
            name: dataclasses.replace(runs[name][1], shared=shared)
            for name, shared in found.items()
        }
    policies = _train(folder, plan, runs, _trained_on(data), reporter, stop, timings)
    return {
        name: dataclasses.replace(
            site,
            kind=FederatedSite(policies={s: of_seed[name] for s, of_seed in policies.items()}),
        )
        for name, (_, site) in runs.items()
    }


def continue_line(folder: Path) -> str:
    """The command that continues a federation."""
    return f"neorl-train federate {folder}"


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
) -> dict[str, Experience]:
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
        data[name] = experience
    return data


def _trained_on(experiences: Mapping[str, Experience]) -> dict[str, TrainingData]:
    """The training data of every site, which are in memory."""
    return {
        name: one.training
        for name, one in experiences.items()
        if isinstance(one.training, TrainingData)
    }


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
            name = f"{plan.algorithm} on {len(plan.sites)} sites, seed {seed}"
            rounds = plan.settings.federation.rounds
            reporter.stage(name, total=rounds, done=newest, unit="rounds/s")
            with timings.stage(f"rounds of seed {seed}"), stop.later():
                result = federate(
                    hyperparameters(config, plan.algorithm), data, plan.settings, seed=seed,
                    faults=plan.faults, checkpoints=checkpoints,
                    watch=recorded_rounds(records, reporter, seed),
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


LOCAL = "local"
"""Suffix of the learner's name for its training on one site only."""


@dataclasses.dataclass(frozen=True)
class FederatedSite(RunKind):
    """A site whose policies were trained jointly; it also trains alone for as long, to compare.

    Attributes:
        policies: The federation's policy for every seed.
    """

    policies: Mapping[int, Policy] = dataclasses.field(default_factory=dict)

    def train(self, task: Task, run: ResolvedRun, experience: Experience | None) -> Learned:
        """Trains on the site's own log for comparison; the common policies are the ones judged.

        Raises:
            InputError: If a stop was requested before the end.
        """
        assert experience is not None  # a site has a log
        task.print_line(f"training {task.name} on this site alone, for comparison")
        local = train(
            task.learner,
            experience.training,
            task.seeds,
            task.plan,
            watcher=UNWATCHED,
            checkpoints=task.checkpoints.part(LOCAL),
            stop=task.stop,
        )
        policies = [self.policies[seed] for seed in task.seeds]
        federated = Trained(
            task.learner, task.seeds, task.plan.updates, policies, {}, finished=local.finished
        )
        task.watcher.begin(0)
        metrics = [jax.device_get(task.validate(policy)) for policy in policies]
        floats = [{name: float(x) for name, x in of_seed.items()} for of_seed in metrics]
        task.watcher.validated(task.plan.updates, floats)
        alone = dict(zip(local.seeds, local.policies, strict=True))
        return Learned(federated, compared={f"{task.name}_{LOCAL}": alone})


def federation_results(
    plan: FederationPlan, sites: Mapping[str, RunDirectory], rounds: Sequence[Mapping[str, Any]]
) -> tuple[str, dict[str, Any]]:
    """The comparison over all sites, as text and as JSON."""
    evaluations = {name: read_evaluation(run.path) for name, run in sites.items()}
    site_results = {
        name: _site(plan.algorithm, run, evaluations[name]) for name, run in sites.items()
    }
    differences = {
        name: _paired(evaluation, plan.algorithm, f"{plan.algorithm}_{LOCAL}")
        for name, evaluation in evaluations.items()
        if evaluation.tables.environment
    }
    for name, paired in differences.items():
        site_results[name]["gain"] = mean_gain([paired])
    document: dict[str, Any] = {
        "algorithm": plan.algorithm,
        "rule": plan.settings.federation.rule,
        "rounds": plan.settings.federation.rounds,
        "seeds": list(plan.seeds),
        "sites": site_results,
        "messages": _messages(rounds),
        "outcomes": _outcomes(rounds),
    }
    if plan.settings.private:
        privacy = plan.settings.privacy
        document["privacy"] = {
            "epsilon": epsilon(
                rounds=plan.settings.federation.rounds * len(plan.seeds),
                noise_multiplier=privacy.noise_multiplier,
                participation=plan.settings.federation.participation,
                delta=privacy.delta,
            ),
            "delta": privacy.delta,
            "added_by": privacy.added_by,
            "dishonest": privacy.dishonest,
        }
    means = _means(site_results, differences)
    if means:
        document["mean_of_sites"] = means
    return "\n".join(_sentences(document)), document


def _site(algorithm: str, run: RunDirectory, evaluation: Evaluation) -> dict[str, Any]:
    verdict = read_verdict(run.path)
    site: dict[str, Any] = {
        "run": str(run.path),
        "verdict": verdict.answer,
        "rows": evaluation.source.rows,
    }
    if not evaluation.tables.environment:
        return site  # a log alone cannot show the returns of another policy
    site["returns"] = {
        "federated": _mean(evaluation, algorithm), LOCAL: _mean(evaluation, f"{algorithm}_{LOCAL}")
    }  # fmt: skip
    site["returns"] |= {
        row.name: row.returns.value
        for row in evaluation.tables.rows
        if row.role in ("classical", "behaviour") and not row.guarded
    }
    return site


def _mean(evaluation: Evaluation, group: str) -> float:
    rows = [r for r in evaluation.tables.rows if r.group == group and not r.guarded]
    return float(np.mean([row.returns.value for row in rows]))


def _paired(evaluation: Evaluation, trained: str, compared: str) -> Float[np.ndarray, "seed start"]:
    """Return of the common policy minus that of local training, by seed and start."""
    returns = {
        group: np.asarray(
            [
                result.episodes.returns
                for result in sorted(evaluation.results, key=lambda result: result.seeds)
                if result.group == group and not result.guarded
            ],
            np.float64,
        )
        for group in (trained, compared)
    }
    return returns[trained] - returns[compared]


def mean_gain(differences: Sequence[Float[np.ndarray, "seed start"]]) -> dict[str, float]:
    """Mean of paired differences over sites, seeds and starts, and its standard error.

    A seed trains all sites together, so its effect does not average out over them: the variance of
    the mean is that of the seeds' means over all sites, plus that of the starts of every site
    without the remainder, which the seeds' means contain already. With one seed the error is over
    its starts alone, because nothing shows what another seed would give.

    Args:
        differences: For every site, one number for each seed and each start, with the same seeds
            at all sites.

    Returns:
        ``mean`` and ``standard_error``, in the unit of the differences.
    """
    seeds = len(differences[0])
    by_seed = np.mean([site.mean(axis=1) for site in differences], axis=0)
    variance = by_seed.var(ddof=1) / seeds if seeds > 1 else 0.0
    for site in differences:
        by_start, starts = site.mean(axis=0), site.shape[1]
        remainder = site - site.mean(axis=1, keepdims=True) - by_start + site.mean()
        rest = (remainder**2).sum() / ((seeds - 1) * (starts - 1)) / seeds if seeds > 1 else 0.0
        variance += max(by_start.var(ddof=1) - rest, 0.0) / starts / len(differences) ** 2
    return {"mean": float(by_seed.mean()), "standard_error": float(np.sqrt(variance))}


def _means(
    site_results: Mapping[str, Mapping[str, Any]],
    differences: Mapping[str, Float[np.ndarray, "seed start"]],
) -> dict[str, float]:
    if len(differences) < len(site_results):
        return {}
    returns = [site["returns"] for site in site_results.values()]
    gain = mean_gain(list(differences.values()))
    return {
        **{name: float(np.mean([site[name] for site in returns])) for name in ("federated", LOCAL)},
        "gain": gain["mean"],
        "gain_standard_error": gain["standard_error"],
    }


def _messages(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    sent = sum(line["bytes_up"] for line in rounds)
    plain = sum(line["bytes_plain"] for line in rounds)
    return {
        "bytes_up": sent,
        "bytes_down": sum(line["bytes_down"] for line in rounds),
        "bytes_saved": max(plain - sent, 0),
        "largest_error": max((line["error"] for line in rounds), default=0.0),
    }


def _outcomes(rounds: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """How often each site answered, and what happened otherwise."""
    counts: dict[str, dict[str, int]] = {}
    for line in rounds:
        for name, outcome in line["outcomes"].items():
            kind = outcome.partition(":")[0]
            counts.setdefault(name, {})
            counts[name][kind] = counts[name].get(kind, 0) + 1
    return counts


def _sentences(document: Mapping[str, Any]) -> list[str]:
    lines = [f"{document['algorithm']} by {document['rule']}, {document['rounds']} rounds"]
    for name, site in document["sites"].items():
        line = f"  {name}: {site['rows']} rows, {site['verdict']}"
        if "returns" in site:
            gain = site["gain"]
            line += (
                f"; return {site['returns']['federated']:.4g} together, "
                f"{site['returns']['local']:.4g} alone "
                f"({gain['mean']:+.3g} ± {gain['standard_error']:.2g} paired)"
            )
        lines.append(line)
        failures = {k: n for k, n in document["outcomes"].get(name, {}).items() if k != "answered"}
        if failures:
            lines.append("    rounds: " + ", ".join(f"{n} {kind}" for kind, n in failures.items()))
    if "mean_of_sites" in document:
        means = document["mean_of_sites"]
        lines.append(
            f"  mean of the sites: {means['federated']:.4g} together, {means['local']:.4g} alone "
            f"({means['gain']:+.3g} ± {means['gain_standard_error']:.2g}, standard error)"
        )
        if len(document["seeds"]) == 1:
            lines.append(
                "  the errors are over the starts of one seed; train two seeds or more to see how "
                "much the training itself varies"
            )
    messages = document["messages"]
    saved = messages["bytes_saved"]
    lines.append(
        f"messages: {messages['bytes_up'] / 1e6:.3g} MB sent by the sites"
        + (f", {saved / 1e6:.3g} MB saved" if saved else "")
        + f", {messages['bytes_down'] / 1e6:.3g} MB sent to them"
    )
    if "privacy" in document:
        privacy = document["privacy"]
        lines.append(
            f"privacy: epsilon {privacy['epsilon']:.3g} at delta {privacy['delta']:g} for the "
            "updates of one site in all rounds; merged statistics are not covered"
            + (
                f"; the server need not be trusted, if at most {privacy['dishonest']} of the sites "
                "collude with it"
                if privacy["added_by"] == "sites"
                else ""
            )
        )
    return lines
