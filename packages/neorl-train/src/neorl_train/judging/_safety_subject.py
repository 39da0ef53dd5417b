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
class PolicyUnderTest:
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


def read_policy_under_test(path: Path, policy: str = "") -> PolicyUnderTest:
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
        records = guard.get("monitors", {}).get("monitors", [])
        needed = {
            str(policy_name) for record in records for policy_name in record.get("policies", ())
        }
        policies = {
            policy_name: load_policy(run / policy_file(policy_name)).policy
            for policy_name in sorted(needed)
        }
        settings = settings_from_dict(guard, artefact.spec, policies, str(run / GUARD))
        fallbacks = {
            policy_name: load_policy(run / policy_file(policy_name)).policy
            for policy_name in settings.fallbacks
        }
    except ArtefactError as error:
        raise InputError(f"cannot use a policy of {run}: {error}") from error
    return PolicyUnderTest(
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
    absolute = path.absolute()
    if (absolute / MANIFEST).is_file():
        return _of_bundle(absolute)
    if absolute.suffix == ".safetensors" and absolute.is_file():
        run = absolute.parent.parent
        RunDirectory(run).record()
        return run, absolute.stem
    if absolute.is_dir():
        RunDirectory(absolute).record()
        return absolute, str(_json(absolute / VERDICT).get("candidate", FALLBACK))
    raise InputError(
        f"{path} is not a run, a policy artefact or a bundle; give one of these, for example "
        "runs/0001"
    )


def _of_bundle(bundle: Path) -> tuple[Path, str]:
    """The run that contains a bundle; the bundle itself contains only the guarded program."""
    run = bundle.parent
    manifest = _json(bundle / MANIFEST)
    try:
        provenance = manifest["provenance"]["policy"]
        name, digest = Path(str(provenance["file"])).stem, provenance["digest"]
    except (KeyError, TypeError) as error:
        raise InputError(f"{bundle} has a damaged manifest; export it again") from error
    file = run / policy_file(name)
    if not file.is_file():
        raise InputError(
            f"{bundle} contains only the guarded program, and a comparison without the filter "
            f"needs the run that it was exported from, but {file} does not exist; restore that run"
        )
    if load_policy(file).digest != digest:
        raise InputError(
            f"{bundle} was not exported from {file}; give the run that it was exported from"
        )
    if _json(run / CONSTRAINTS) != manifest["constraints"]:
        raise InputError(
            f"{bundle} and {run / CONSTRAINTS} have different constraints; export the bundle again"
        )
    return run, name


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{path}: there is no such file; give a finished run, which {path.parent} may not be"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}); restore it") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} is damaged: it does not contain a JSON object; restore it")
    return content
