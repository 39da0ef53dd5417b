"""Evaluates a finished run on fresh starts: same policies, guard and rule, without retraining."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure import head, write_json
from neorl_envs import read_dataset
from neorl_envs.scoring import GymnasiumJudge
from neorl_train._job.artefacts import read_policy_under_test
from neorl_train._job.evaluation import (
    INPUTS,
    RESULTS,
    equal_evaluation,
    evaluate_candidates,
    evaluation_inputs,
    results_digest,
    write_results,
)
from neorl_train._job.resolution import reopen
from neorl_train._job.resolved_run import ResolvedRun
from neorl_train.candidates._given import stored_pool
from neorl_train.candidates._table import run_controllers
from neorl_train.configuration._sections import CandidateConfig, batch_sizes
from neorl_train.configuration._validation import configure
from neorl_train.data._behaviours import usual_incumbent
from neorl_train.data._experience import training_experience
from neorl_train.data._source import require_same_channels, source_named
from neorl_train.judging._pool import Pool
from neorl_train.judging._results import Evaluation, read_evaluation
from neorl_train.judging._rule import verdict
from neorl_train.judging._verdict import Verdict
from neorl_train.runs._directory import (
    EVALUATIONS,
    FINISHED,
    STARTS,
    VERDICT,
    RunDirectory,
    numbered_runs,
)

VERSION = 1
"""Version of ``starts.json``."""


@dataclasses.dataclass(frozen=True)
class RepeatedEvaluation:
    """An additional evaluation of a run.

    Attributes:
        path: Folder inside the run that contains its evaluation and its verdict.
        evaluation: Results.
        verdict: Verdict by the run's own rule.
        seed: Seed of the starts.
        earlier: Number of earlier evaluations of the run, including its own.
        first: Answer of the run itself.
    """

    path: Path
    evaluation: Evaluation
    verdict: Verdict
    seed: int
    earlier: int
    first: str


def evaluate_again(
    run: RunDirectory, *, starts: int = 0, seed: int = -1, candidate: str = "", plant: str = ""
) -> RepeatedEvaluation:
    """Evaluates the policies of a finished run on other starts of its simulated plant.

    Policies that were trained on a log can be evaluated on the simulator that ``plant`` names, or
    scored in a Gymnasium environment, whose episodes are resets with ``seed`` and those after it.

    The run's own evaluation, verdict and report are unchanged. The new results are written to a
    numbered folder in :data:`EVALUATIONS` inside the run. If an earlier evaluation was made with
    the same request and would give the same result, it is returned instead.

    Args:
        run: Directory of the run.
        starts: Number of paired episodes; 0 uses as many as the run.
        seed: Seed of the starts; -1 chooses one that no evaluation of this run has used.
        candidate: Policy to judge; empty uses the candidate of the run.
        plant: Simulated plant, or Gymnasium environment for a run on a log, with the channels of
            the run; empty uses that of the run.

    Raises:
        InputError: If the run is not finished or has no simulator, the named plant has other
            channels, the candidate is not one of its policies, or there are fewer than two starts.
    """
    record = run.record()
    if record["status"] != FINISHED:
        raise InputError(f"{run.path} is {record['status']}, not finished: {run.resume_line()}")
    resolved_run = reopen(configure(run.config))
    if plant:
        resolved_run = _run_on_plant(resolved_run, plant)
    if resolved_run.environment is None and resolved_run.judge is None:
        raise InputError(
            f"{run.path} was trained on {resolved_run.config.data.source}, a log without a "
            "simulator, and fresh starts need one; name the simulator of its plant with --plant, "
            f"or compare policies on the log with `neorl-train choose {run.path.name}`"
        )
    if starts < 0 or starts == 1:
        raise InputError(f"starts must be at least 2, or 0 for those of the run, got {starts}")
    settings, earlier = resolved_run.config.evaluation, numbered_runs(run.path / EVALUATIONS)
    if seed < 0:
        # In a Gymnasium environment every start has a seed of its own.
        each = resolved_run.environment is None
        own = settings.seed + (settings.starts if each else 1)
        seed = max([own, *(_seed_after(path, each=each) for path in earlier)])
    first = json.loads((run.path / VERDICT).read_text(encoding="utf-8"))
    pool = stored_pool(run.path)
    candidate = candidate or str(first["candidate"])
    if candidate not in pool:
        raise InputError(
            f"{run.path} has no policy {candidate}; it has {', '.join(pool.policies)}; "
            "name one of them with --candidate"
        )
    identity: dict[str, Any] = {"seed": seed, "starts": starts or settings.starts}
    identity |= {"candidate": candidate, "plant": plant}
    # What a Gymnasium environment computes is not known, so nothing is equal to its scores.
    tracked = resolved_run.environment is not None
    inputs = evaluation_inputs(record, pool.policies, **identity) if tracked else ""
    earlier_path = equal_evaluation(earlier, inputs, _starts)
    if earlier_path is not None:
        evaluation = read_evaluation(earlier_path)
        answer, position = verdict(evaluation.tables), 1 + earlier.index(earlier_path)
        return RepeatedEvaluation(
            earlier_path, evaluation, answer, seed, position, str(first["answer"])
        )
    evaluation = _evaluate(run, resolved_run, pool, candidate, seed, starts)
    answer = verdict(evaluation.tables)
    number = 1 + max((int(path.name) for path in earlier), default=0)
    path = run.path / EVALUATIONS / f"{number:04d}"
    path.mkdir(parents=True)
    document = {**identity, "starts": evaluation.tables.n_starts}
    try:
        write_json(path / STARTS, {**head("starts", VERSION), **document})
        write_results(path, evaluation, answer)
        digests = {INPUTS: inputs, RESULTS: results_digest(path)}
        write_json(path / STARTS, {**head("starts", VERSION), **document, **digests})
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)  # a partial one would count as earlier
        raise
    return RepeatedEvaluation(
        path, evaluation, answer, seed, 1 + len(earlier), str(first["answer"])
    )


def _run_on_plant(resolved_run: ResolvedRun, name: str) -> ResolvedRun:
    """The same run on a named simulator, or in a Gymnasium environment.

    A log alone may have no incumbent that acts; then it is one of the simulator's tunings.
    """
    if name.startswith("gym:") and resolved_run.environment is None:
        judge = GymnasiumJudge(name, resolved_run.spec)
        return dataclasses.replace(resolved_run, judge=judge)
    environment = source_named(name).simulator()
    if environment is None:
        raise InputError(f"--plant must name a simulated plant, such as CSTR-v0, got {name!r}")
    require_same_channels(environment.spec, resolved_run.spec, name)
    settings = resolved_run.config.evaluation
    own = resolved_run.config.classical.declared
    given = settings.incumbent in own or bool(settings.incumbent_file)
    both = {*own, *([settings.runs_today] if given else [])} & {*environment.tunings()}
    if both:
        raise InputError(
            f"{', '.join(sorted(both))} is a controller of {resolved_run.config.data.source} and a "
            f"tuning of {name}; start a run with --evaluation.environment {name} and another name"
        )
    if not given and settings.incumbent not in environment.tunings():
        usual, _ = usual_incumbent(environment, resolved_run.dataset)
        settings = dataclasses.replace(settings, incumbent=usual)
    config = dataclasses.replace(resolved_run.config, evaluation=settings)
    return dataclasses.replace(resolved_run, config=config, environment=environment, judge=None)


def _starts(path: Path) -> dict[str, Any]:
    """What an earlier evaluation recorded about its starts."""
    return json.loads((path / STARTS).read_text(encoding="utf-8"))


def _seed_after(path: Path, *, each: bool) -> int:
    """The seed after that of an earlier evaluation, or after those of each of its starts."""
    try:
        starts = _starts(path)
        return int(starts["seed"]) + (int(starts["starts"]) if each else 1)
    except (OSError, ValueError, KeyError, TypeError):  # it is damaged
        return 0


def _evaluate(
    run: RunDirectory,
    resolved_run: ResolvedRun,
    pool: Pool,
    candidate: str,
    seed: int,
    starts: int,
) -> Evaluation:
    path = resolved_run.source.log_file(run.dataset)
    # The log is listed with the policies where it still exists, but not judged.
    dataset = read_dataset(path, memory_map=True) if path.is_file() else None
    digests = run.record().get("given_policies", {})
    config, spec = resolved_run.config, resolved_run.spec
    candidates, plant = CandidateConfig.of(config), resolved_run.environment
    controllers = run_controllers(candidates, dataset, plant, spec, digests)
    subject = read_policy_under_test(run.path, candidate)
    fields = ("constraints", "fallbacks", "settings")
    guard = {field: getattr(subject, field) for field in fields}
    data: Any = dataset
    if plant is None:
        data = training_experience(
            config.data, data, spec, penalty=config.penalty, batch_sizes=batch_sizes(config),
            path=path,
        )  # fmt: skip
    return evaluate_candidates(
        resolved_run,
        dataclasses.replace(pool, incumbent=config.evaluation.runs_today),
        data,
        controllers,
        guard,
        candidate=candidate,
        seed=seed,
        starts=starts or config.evaluation.starts,
    )
