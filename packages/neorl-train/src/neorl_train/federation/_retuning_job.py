"""The stage of a federation in which sites vote on proposed gains, and its comparison."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neorl_core import InputError
from neorl_core.infrastructure import head, write_json
from neorl_train._job.candidates import learned_at_site
from neorl_train._job.evaluation import is_complete
from neorl_train._job.resolved_run import ResolvedRun, Session, SharedRetuning
from neorl_train._process.control import StopSignal
from neorl_train._process.progress import Reporter, Timings
from neorl_train.candidates._retuned import retune_settings
from neorl_train.data._experience import Experience
from neorl_train.federation._engine import recorded_rounds
from neorl_train.federation._retuning import Proposals, RetuningSite, federate_retuning
from neorl_train.federation._settings import FederationPlan
from neorl_train.judging._results import read_evaluation
from neorl_train.judging._verdict import read_verdict
from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._records import Records

PROPOSALS = "proposals.json"
VERSION = 1


def searched_together(
    folder: Path,
    plan: FederationPlan,
    runs: Mapping[str, tuple[RunDirectory, ResolvedRun]],
    experiences: Mapping[str, Experience],
    reporter: Reporter,
    stop: StopSignal,
    timings: Timings,
    rounds: Path,
) -> dict[str, SharedRetuning]:
    """What every site knows after all rounds, for those whose runs are not complete.

    A vote that is complete is not repeated. A search that was stopped starts again, and comes to
    the same proposals.

    Raises:
        InputError: If a log does not suffice, or the sites do not fit together.
    """
    seed, sites, learned = plan.seeds[0], [], {}
    path = folder / PROPOSALS
    for name, (directory, run) in runs.items():
        if path.is_file() and is_complete(directory):
            continue
        reporter.print_line(f"site {name}")
        session = Session(directory, reporter, stop, timings)
        try:
            material, lines = learned_at_site(run, session, experiences[name])
            assert material.plants is not None  # just learned
            assert material.incumbent is not None
            learned[name] = (material.plants, material.incumbent, lines)
            sites.append(
                RetuningSite(
                    name,
                    material.plants,
                    material.incumbent,
                    plan.settings,
                    retune_settings(run.config.retuning),
                    seed=seed,
                    faults=plan.faults,
                )
            )
        except InputError as error:
            raise InputError(f"site {name}: {error}") from error
        stop.check()
    if not path.is_file():
        with timings.stage("search together"):
            proposals = _vote(plan, sites, reporter, stop, rounds)
        write_json(path, {**head("proposals", VERSION), **_document(proposals, sites)})
    preferred = json.loads(path.read_text(encoding="utf-8"))["preferred"]
    return {
        name: SharedRetuning(
            {title: np.asarray(changes) for title, changes in preferred[name].items()},
            plants,
            incumbent,
            (*lines, _origin(len(runs), list(preferred[name]))),
        )
        for name, (plants, incumbent, lines) in learned.items()
    }


def _origin(sites: int, preferred: list[str]) -> str:
    """What the sites together say of the controller at one of them."""
    if not preferred:
        return f"{sites} sites retuned together; they prefer no proposal to what runs here"
    return (
        f"{sites} sites retuned together; they prefer {', '.join(preferred)} to what runs here, "
        "and this site judges these by its own log"
    )


def _vote(
    plan: FederationPlan,
    sites: Sequence[RetuningSite],
    reporter: Reporter,
    stop: StopSignal,
    rounds: Path,
) -> Proposals:
    """What the sites propose and prefer; every round is a line of the records."""
    rounds.unlink(missing_ok=True)  # those of a vote that was stopped
    records, number = Records(rounds), plan.settings.federation.rounds
    reporter.stage(f"searching gains at {len(sites)} sites", total=number, done=0, unit="rounds/s")
    watch = recorded_rounds(records, reporter, plan.seeds[0], votes=True)
    try:
        proposals = federate_retuning(
            sites, plan.settings, seed=plan.seeds[0], faults=plan.faults, watch=watch,
            print_line=reporter.print_line, stop=stop.requested,
        )  # fmt: skip
    finally:
        records.close()
    reporter.end()
    stop.check()
    assert proposals is not None  # only a request to stop ends without
    return proposals


def _document(proposals: Proposals, sites: Sequence[RetuningSite]) -> dict[str, Any]:
    return {
        "parameters": list(proposals.parameters),
        "proposals": dict(zip(proposals.names, proposals.values.tolist(), strict=True)),
        "preferred": {
            site.name: {title: c.tolist() for title, c in proposals.changes_for(site).items()}
            for site in sites
        },
    }


def retuning_results(
    folder: Path, plan: FederationPlan, sites: Mapping[str, RunDirectory]
) -> tuple[str, dict[str, Any]]:
    """What every site took, as text and as JSON."""
    voted = json.loads((folder / PROPOSALS).read_text(encoding="utf-8"))
    results = {name: _site(run) for name, run in sites.items()}
    document = {
        "method": plan.settings.federation.method,
        "rule": plan.settings.federation.rule,
        "parameters": voted["parameters"],
        "proposals": voted["proposals"],
        "sites": results,
    }
    count, rule = len(voted["proposals"]), plan.settings.federation.rule
    lines = [f"votes on {count} proposed tunings combined by {rule}"]
    for name, site in results.items():
        site["preferred"] = list(voted["preferred"][name])
        changed = "; ".join(site["changes"]) or "today's gains are kept"
        lines.append(f"  {name}: {site['rows']} rows, {site['verdict']}; {changed}")
        if "gain" in site:
            value, low, high = site["gain"]
            lines.append(
                f"    return on the plant: {value:+.3g} [{low:.3g}, {high:.3g}] over today's "
                "controller, paired, both without the guard"
            )
    return "\n".join(lines), document


def _site(run: RunDirectory) -> dict[str, Any]:
    """Verdict and changes of a site and, if it has a simulator, what they bring there."""
    evaluation = read_evaluation(run.path)
    site: dict[str, Any] = {
        "run": str(run.path),
        "verdict": read_verdict(run.path).answer,
        "rows": evaluation.source.rows,
        "changes": list(run.record().get("changes", [])),
    }
    differences = [
        row.difference
        for row in evaluation.tables.rows
        if row.name == evaluation.tables.candidate
        and not row.guarded
        and row.difference is not None
    ]
    for difference in differences:  # one, if the site has a simulator; the guard changes more
        site["gain"] = [difference.value, difference.low, difference.high]
    return site
