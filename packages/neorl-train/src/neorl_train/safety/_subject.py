"""The subject of a safety report: a policy with its guard, from a run, an artefact or a bundle."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from neorl_agents import ArtefactError, load_policy
from neorl_core import InputError, Policy, Spec
from neorl_safety.constraints import Constraints, constraints_from_dict
from neorl_safety.guards import GuardSettings, settings_from_dict
from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._names import CONSTRAINTS, FALLBACK, GUARD, VERDICT, policy_file

MANIFEST = "manifest.json"


@dataclasses.dataclass(frozen=True)
class Subject:
    """A policy and all parts of its guard.

    Attributes:
        name: For example ``"iql-0"``.
        policy: The policy without its guard.
        spec: Its channels, with the cost limits of the run.
        constraints: Limits that its guard enforces.
        fallbacks: Fallbacks by name.
        settings: Monitors and supervisor.
        source: Name of the plant, or file of the log, on which it was trained.
        constants: Factors on the constants of that plant.
        run: Directory of the run.
    """

    name: str
    policy: Policy
    spec: Spec
    constraints: Constraints
    fallbacks: dict[str, Policy]
    settings: GuardSettings
    source: str
    constants: dict[str, float]
    run: Path


def read_subject(path: Path, policy: str = "") -> Subject:
    """Finds the policy that a path refers to.

    Args:
        path: A run directory (its candidate), an artefact in a run, or a bundle in a run (the
            exported policy).
        policy: Name of another policy of the run.

    Returns:
        The policy with its guard.

    Raises:
        InputError: If the path is none of these, a part is missing or damaged, or the bundle was
            not exported from the artefacts beside it.
    """
    run, name = _located(path)
    name = policy or name
    try:
        artefact = load_policy(run / policy_file(name))
        guard = _json(run / GUARD)
        watched = guard.get("monitors", {}).get("monitors", [])
        needed = {str(one) for record in watched for one in record.get("policies", ())}
        policies = {one: load_policy(run / policy_file(one)).policy for one in sorted(needed)}
        settings = settings_from_dict(guard, artefact.spec, policies, str(run / GUARD))
        fallbacks = {one: load_policy(run / policy_file(one)).policy for one in settings.fallbacks}
    except ArtefactError as error:
        raise InputError(f"cannot use a policy of {run}: {error}") from error
    return Subject(
        name=name,
        policy=artefact.policy,
        spec=artefact.spec,
        constraints=constraints_from_dict(_json(run / CONSTRAINTS), str(run / CONSTRAINTS)),
        fallbacks=fallbacks,
        settings=settings,
        source=str(artefact.metadata.get("source", "")),
        constants=dict(artefact.metadata.get("constants", {})),
        run=run,
    )


def _located(path: Path) -> tuple[Path, str]:
    """The run that contains a path, and the policy that it names."""
    where = path.absolute()
    if (where / MANIFEST).is_file():
        return _of_bundle(where)
    if where.suffix == ".safetensors" and where.is_file():
        run = where.parent.parent
        RunDirectory(run).record()
        return run, where.stem
    if where.is_dir():
        RunDirectory(where).record()
        return where, str(_json(where / VERDICT).get("candidate", FALLBACK))
    raise InputError(
        f"{path} is no run, no policy artefact and no bundle; give, for example, runs/0001"
    )


def _of_bundle(bundle: Path) -> tuple[Path, str]:
    """The run that contains a bundle; the bundle itself contains only the guarded program."""
    run = bundle.parent
    manifest = _json(bundle / MANIFEST)
    try:
        provenance = manifest["provenance"]["policy"]
        name, digest = Path(str(provenance["file"])).stem, provenance["digest"]
    except (KeyError, TypeError) as error:
        raise InputError(f"{bundle}: damaged manifest; export it again") from error
    file = run / policy_file(name)
    if not file.is_file():
        raise InputError(
            f"{bundle} holds the guarded program alone, and what it does without its filter needs "
            f"the run that it was exported from; {file} is not there"
        )
    if load_policy(file).digest != digest:
        raise InputError(f"{bundle} was not exported from {file}; give the run that it is of")
    if _json(run / CONSTRAINTS) != manifest["constraints"]:
        raise InputError(f"{bundle} has other constraints than {run / CONSTRAINTS}")
    return run, name


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; is {path.parent} a finished run?") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: damaged ({error})") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: damaged, no object")
    return content
