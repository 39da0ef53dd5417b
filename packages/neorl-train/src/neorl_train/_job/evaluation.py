"""Evaluates the candidates of a run on a plant; writes evaluations, and finds an equal one."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from neorl_agents import load_policy
from neorl_core import Policy
from neorl_core.infrastructure import check_head
from neorl_envs import Dataset
from neorl_safety.constraints import constraints_from_dict
from neorl_train._job.monitors import trend_arguments
from neorl_train._job.resolved_run import ResolvedRun
from neorl_train.data._experience import Experience
from neorl_train.data._source import code_digest
from neorl_train.judging._pool import Pool
from neorl_train.judging._results import Evaluation, read_evaluation, write_evaluation
from neorl_train.judging._rollouts import starts_key
from neorl_train.judging._training_results import read_fine_tuning
from neorl_train.judging._verdict import Verdict, read_verdict, write_verdict
from neorl_train.runs._checkpoints import tree_digest
from neorl_train.runs._directory import (
    CONSTRAINTS,
    DIVERGED,
    EVALUATION,
    FINISHED,
    GUARD,
    REPORT,
    TRACES,
    RunDirectory,
    numbered_runs,
    policy_file,
)
from neorl_train.runs._records import read_records

INPUTS, RESULTS = "evaluation_inputs", "evaluation_digest"
"""Fields of the record: the digest of an evaluation's inputs, and that of its results."""
OWN_PACKAGES = ("neorl_core", "neorl_envs", "neorl_safety", "neorl_agents", "neorl_train")


def evaluate_candidates(
    run: ResolvedRun,
    pool: Pool,
    data: Experience | Dataset | None,
    controllers: Mapping[str, Policy],
    guard: Mapping[str, Any],
    *,
    candidate: str,
    seed: int,
    starts: int,
) -> Evaluation:
    """Runs candidates, controllers and the behaviour of a run on its plant, by its settings.

    Without a plant they are compared with the log, of which ``data`` is the split, and scored in
    the run's Gymnasium environment if it has one, by resets with the seeds from ``seed`` on.
    ``guard`` contains the parts of the guard, by the names of the arguments of ``evaluate``, which
    is imported here because training must not wait for the import.
    """
    from neorl_train.judging._evaluate import evaluate, evaluate_offline

    config = run.config
    shared: dict[str, Any] = {
        "candidate": candidate,
        "spec": run.judged_spec,
        "controllers": controllers,
        "level": config.evaluation.level,
        "episode_margin": config.evaluation.episode_margin,
    }
    if run.environment is None:
        assert isinstance(data, Experience)  # if there is no plant, there is a log
        manipulated, dataset = config.classical.manipulated, data.dataset
        return evaluate_offline(
            pool,
            dataset=dataset,
            held_out=data.held_out,
            training=data.training,
            judge=run.judge,
            judge_seeds=range(seed, seed + starts),
            **trend_arguments(config.data, manipulated, run.spec, dataset, guard),
            **shared,
        )
    return evaluate(
        run.environment,
        pool,
        data.dataset if isinstance(data, Experience) else data,
        behaviour=run.behaviour,
        key=starts_key(seed),
        n_starts=starts,
        **guard,
        **shared,
    )


def write_results(run: Path, evaluation: Evaluation, verdict: Verdict) -> None:
    """Writes ``evaluation.json``, ``traces.json`` and ``verdict.json``, each atomically.

    The verdict is written last, so that it never exists alone.
    """
    write_evaluation(run, evaluation)
    write_verdict(run, verdict)


def evaluation_inputs(
    record: Mapping[str, Any], policies: Mapping[str, Policy], **further: Any
) -> str:
    """A digest of everything that determines the evaluation of a run, including our own code.

    Returns:
        The digest; empty if code is involved that is not tracked: a learner, a plant or a reader of
        another distribution, or the run that a fine-tuning began with.
    """
    if any(record.get("origins", {}).values()) or record.get("fine_tunes"):
        return ""
    content = {
        "config": record["config_hash"],
        "log": record.get("dataset", {}).get("content_hash", ""),
        "policies": tree_digest(dict(policies)),
        "given": record.get("given_policies", {}),
        "code": code_digest(OWN_PACKAGES),
        "versions": {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy", "scipy")},
        "devices": [jax.default_backend(), jax.local_device_count()],
        **further,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def matching_evaluation(run: RunDirectory, inputs: str) -> tuple[Path, Evaluation] | None:
    """The evaluation of another run in the same folder with the same inputs."""
    others = [path for path in numbered_runs(run.path.parent) if path != run.path]
    path = equal_evaluation(others, inputs, lambda path: RunDirectory(path).record())
    return None if path is None else (path, read_evaluation(path))


def equal_evaluation(
    paths: Sequence[Path], inputs: str, record: Callable[[Path], Mapping[str, Any]]
) -> Path | None:
    """The last of several evaluations with the same inputs, if it is unchanged.

    An empty digest matches none. ``record`` reads the digests of an evaluation; one that cannot be
    read is passed over.
    """
    for path in reversed(paths if inputs else ()):
        try:
            digests = record(path)
            if digests.get(INPUTS) == inputs and digests.get(RESULTS) == results_digest(path):
                return path
        except (OSError, ValueError):  # every InputError is a ValueError
            continue
    return None


def results_digest(run: Path) -> str:
    """Digest of the files of an evaluation."""
    files = [(run / name).read_bytes() for name in (EVALUATION, TRACES)]
    return hashlib.sha256(b"\0".join(files)).hexdigest()


LAST_TAG = "</html>"
GUARD_VERSION = 1


def is_complete(run: RunDirectory) -> bool:
    """Whether a run is finished and all its files are present, readable and its own.

    Returns:
        False if it did not finish, or a policy, the constraints, the evaluation, the verdict, the
        metrics or the report is missing, damaged, or not the one recorded.
    """
    record = run.record()
    if record["status"] != FINISHED:
        return False
    try:
        read_evaluation(run.path)
        read_verdict(run.path)
        if record.get("fine_tunes"):
            read_fine_tuning(run.path)
        constraints_from_dict(json.loads((run.path / CONSTRAINTS).read_text(encoding="utf-8")))
        guard = json.loads((run.path / GUARD).read_text(encoding="utf-8"))
        for name in check_head(guard, "guard", GUARD_VERSION, GUARD)["fallbacks"]:
            load_policy(run.path / policy_file(name))
        for name in set(record["algorithms"]).difference(record.get(DIVERGED, {})):
            for seed in record["seeds"]:
                path = run.policy(name, seed)
                if load_policy(path).digest != record.get("policies", {}).get(path.name):
                    return False
        for _line in read_records(run.metrics):
            pass
        report = (run.path / REPORT).read_text(encoding="utf-8")
    except (OSError, ValueError):  # every InputError is a ValueError
        return False
    return report.rstrip().endswith(LAST_TAG)
