"""``neorl-train safety-report``: compares a policy with and without its filter."""

import dataclasses
import json
import sys
from pathlib import Path

from neorl_core import InputError
from neorl_core.infrastructure import setting
from neorl_envs import read_dataset
from neorl_safety.constraints import Constraints, constraints_from_dict, constraints_from_toml
from neorl_train._command.shared import named_run, parse_named, print_json
from neorl_train._job.artefacts import PolicyUnderTest, read_policy_under_test
from neorl_train.data._source import require_same_channels, source_named
from neorl_train.judging import Assessment, assess_on_log, assess_on_plant
from neorl_train.pages import write_safety_report
from neorl_train.pages._safety_page import assessment_to_json, headline

USAGE = """neorl-train safety-report RUN|ARTEFACT|BUNDLE [--OPTION VALUE ...]

Runs a policy with and without its filter on a plant, or in shadow beside a log, checks every
constraint in every step and writes safety.html, safety.json and pictures.

examples:
  neorl-train safety-report runs/0001
  neorl-train safety-report runs/0001/policies/iql-1.safetensors --starts 1000
  neorl-train safety-report runs/0001/policy.bundle --data plant.h5 --out safety

On a log it reports only actions, because a log does not show the costs of the policy.

exit codes: 0 no hard constraint was broken with the filter on, 1 at least one was, 2 bad input
"""
DIRECTORY = "safety"
EXIT_VIOLATION = 1
ADVICE = "name the plant of the policy, or a log of it"


@dataclasses.dataclass(frozen=True)
class SafetyOptions:
    """Options of the command.

    Attributes:
        plant: Name of the plant; by default that of the run.
        data: Dataset file to run in shadow on, instead of a plant.
        policy: Another policy of the run, such as ``iql-1``.
        judged_by: Document of constraints (JSON or TOML) to check instead of the guard's own.
        starts: Number of starts on a plant.
        seed: Seed of the starts.
        level: Confidence level of every interval.
        out: Folder for the report; by default ``safety`` in the run.
        json: Print JSON instead of text.
    """

    plant: str = ""
    data: str = ""
    policy: str = ""
    judged_by: str = ""
    starts: int = setting(128, low=2)
    seed: int = setting(1, low=0)
    level: float = setting(0.95, above=0.5, below=1)
    out: str = ""
    json: bool = False


def command(arguments: list[str]) -> None:
    """``neorl-train safety-report``.

    Raises:
        SystemExit: With 1 if a hard constraint was broken although the filter was on.
    """
    name, options = parse_named(SafetyOptions, arguments, "neorl-train safety-report")
    if not name:
        raise InputError(
            "safety-report takes a run, an artefact or a bundle; for example "
            "`neorl-train safety-report runs/0001`"
        )
    if options.plant and options.data:
        raise InputError("--plant and --data exclude each other; give one of them")
    subject = read_policy_under_test(named_run(name), options.policy)
    assessment = _assess(subject, options)
    page = write_safety_report(assessment, options.out or subject.run / DIRECTORY)
    if options.json:
        print_json(
            "safety-report", {**assessment_to_json(assessment), "page": str(page.absolute())}
        )
        sys.stdout.flush()
        if assessment.broken:
            sys.exit(EXIT_VIOLATION)
        return
    print(headline(assessment))
    for constraint in assessment.constraints:
        counts = ", ".join(
            f"{label} {part.episodes}" for label, part in constraint.violations.items()
        )
        print(f"  {constraint.tier:<10} {constraint.name:<28} episodes with a violation: {counts}")
    print(f"report: {page.absolute()}")
    sys.stdout.flush()
    if assessment.broken:
        sys.exit(EXIT_VIOLATION)


def _assess(subject: PolicyUnderTest, options: SafetyOptions) -> Assessment:
    constraints = _constraints(options.judged_by, subject) if options.judged_by else None
    arguments = {
        "name": subject.name,
        "constraints": subject.constraints,
        "judged_by": constraints,
        "fallbacks": subject.fallbacks,
        "settings": subject.settings,
        "spec": subject.spec,
        "level": options.level,
    }
    name = options.plant or ("" if options.data else subject.source)
    constants = subject.constants if name == subject.source else {}
    environment = source_named(name, constants).simulator() if name else None
    if environment is not None:
        from neorl_train.judging._rollouts import starts_key

        require_same_channels(environment.spec, subject.spec, name, ADVICE)
        key = starts_key(options.seed)
        return assess_on_plant(
            environment, subject.policy, n_starts=options.starts, key=key, **arguments
        )
    if options.plant:
        raise InputError(f"{options.plant} is not a plant; `neorl-train list` names the plants")
    dataset = read_dataset(Path(options.data or name))
    require_same_channels(dataset.spec, subject.spec, str(options.data or name), ADVICE)
    return assess_on_log(dataset, subject.policy, **arguments)


def _constraints(file: str, subject: PolicyUnderTest) -> Constraints:
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from None
    if path.suffix == ".toml":
        return constraints_from_toml(text, subject.spec)
    try:
        return constraints_from_dict(json.loads(text), file)
    except json.JSONDecodeError as error:
        raise InputError(f"{file} is not a JSON file: {error}") from None
