"""From a finished run to a bundle (extra ``export``)."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neorl_deploy._errors import DeployError, NotDeployable, missing_extra
from neorl_deploy.bundle import _files as files_of
from neorl_deploy.bundle._manifest import FORMAT, PARITY_TOLERANCE, SCHEMA_VERSION, ChannelEntry
from neorl_deploy.bundle._read import Bundle, read_bundle
from neorl_deploy.bundle._signature import Signer
from neorl_deploy.bundle._strict_json import dump_canonical, dump_compact
from neorl_deploy.bundle._test_vectors import (
    probe_archive,
    relative_difference,
    sequence_probes,
    single_probes,
)
from neorl_deploy.export._atomic_directory import write_directory
from neorl_deploy.export._stablehlo import OUTPUTS, Exported, Reference, export_programs
from neorl_deploy.runtime._runtime import SELF_TEST_TOLERANCE
from neorl_deploy.shadow._figures_file import is_in_bundle
from neorl_deploy.training_run._run import Run, data_hash, evaluation_summary, read_run, trimmed

if TYPE_CHECKING:
    from neorl_agents import PolicyArtefact
    from neorl_safety.guards import GuardedPolicy

VERSIONED = ("neorl-core", "neorl-safety", "neorl-agents", "neorl-deploy", "jax", "jaxlib", "numpy")
PARITY_SECONDS = 300


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """How to export.

    Attributes:
        out: Directory of the bundle; ``None`` for ``policy.bundle`` in the run.
        policy: Policy to export in place of the verdict's candidate.
        require_deploy: Refuse, and write nothing, unless the verdict is "deploy".
        overwrite: Replace an existing bundle.
        platforms: What to lower for.
        sign_key: Private key file to sign with.
    """

    out: Path | None = None
    policy: str | None = None
    require_deploy: bool = False
    overwrite: bool = False
    platforms: tuple[str, ...] = ("cpu",)
    sign_key: Path | None = None


def export_run(path: Path, options: ExportOptions = ExportOptions()) -> Bundle:
    """Exports the candidate of a finished run, behind its guard, as a bundle.

    A policy that must not be deployed, or of which nothing is known, is exported too (to be
    looked at in shadow), and the manifest says so.

    Args:
        path: The run directory.
        options: How.

    Returns:
        The written bundle, verified.

    Raises:
        NotDeployable: If ``require_deploy`` and the verdict is another.
        DeployError: If the run is not finished or damaged, its parts do not fit together, parity
            is not met, or the bundle cannot be written. Nothing is left behind.
    """
    run = read_run(path, options.policy)
    if options.require_deploy and run.verdict["verdict"] != "deploy":
        raise NotDeployable(
            f"the verdict of {run.path} is {run.verdict['verdict']!r}; nothing was written"
        )
    out = run.path / "policy.bundle" if options.out is None else options.out
    _require_place(out, options.overwrite)
    signer = None if options.sign_key is None else Signer(options.sign_key)
    with _on_cpu():
        candidate, fallback, policy = _guarded(run)
        exported = export_programs(policy, candidate.spec.n_obs, options.platforms)
        sections = _answered_probes(Reference(policy), candidate)
    files = {
        files_of.STEP: exported.step,
        files_of.INITIAL_CARRY: exported.initial_carry,
        files_of.PROBES: probe_archive(sections),
        files_of.CONSTRAINTS: dump_canonical(run.constraints),
        files_of.VERDICT: dump_canonical(run.verdict),
        files_of.EVALUATION: dump_compact(run.evaluation),
    }
    manifest = _manifest(run, candidate, fallback, exported)
    if signer is not None:
        manifest["signature"] = signer.claim
    return _write_proven(out, files, manifest, signer, overwrite=options.overwrite)


def _on_cpu() -> contextlib.AbstractContextManager[Any]:
    """Probes are answered where parity is shown, also on a machine with an accelerator."""
    try:
        import jax
    except ImportError as error:
        raise missing_extra("an export", "export", error) from error
    return jax.default_device(jax.devices("cpu")[0])


def _guarded(run: Run) -> tuple[PolicyArtefact, PolicyArtefact, GuardedPolicy]:
    """The candidate and the fallback behind the run's constraints; everything must fit."""
    try:
        from neorl_agents import ArtefactError, load_policy
        from neorl_agents.artefact import policy_actions
        from neorl_safety.constraints import constraints_from_dict
        from neorl_safety.guards import guard
    except ImportError as error:
        raise missing_extra("an export", "export", error) from error
    try:
        candidate, fallback = load_policy(run.candidate), load_policy(run.fallback)
        constraints = constraints_from_dict(run.constraints)
    except (ArtefactError, OSError) as error:
        raise DeployError(f"cannot use a policy of {run.path}: {error}") from error
    except ValueError as error:
        raise DeployError(f"{run.path / 'constraints.json'}: {error}") from error
    if candidate.spec != fallback.spec:
        raise DeployError(f"{run.candidate} and {run.fallback} are for different plants")
    channels = [(channel.name, channel.unit) for channel in candidate.spec.action]
    limited = list(zip(constraints.names, constraints.units, strict=True))
    if channels != limited:
        raise DeployError(
            f"{run.path / 'constraints.json'} limits the channels {limited}; the policy sets "
            f"{channels}"
        )
    for artefact, path in ((candidate, run.candidate), (fallback, run.fallback)):
        judged = run.policy_digest(path)
        if judged not in (None, artefact.digest):
            raise DeployError(f"{path} is not the policy that the run trained and judged")
        actions = np.asarray(policy_actions(artefact.policy, artefact.probe_obs))
        apart = relative_difference(entries(artefact.spec.action), actions, artefact.probe_actions)
        if not apart <= SELF_TEST_TOLERANCE:
            raise DeployError(
                f"{path} acts otherwise here than where it was trained (difference {apart:.1e} of "
                "a channel's size on its probes); export with the versions of the training"
            )
    return (
        candidate,
        fallback,
        guard(candidate.policy, constraints, fallback.policy, candidate.spec.dt),
    )


def entries(channels: Sequence[Any]) -> tuple[ChannelEntry, ...]:
    """Channels of a specification as a manifest lists them."""
    return tuple(ChannelEntry(c.name, c.unit, float(c.low), float(c.high)) for c in channels)


def _answered_probes(
    reference: Reference, candidate: PolicyArtefact
) -> dict[str, dict[str, np.ndarray]]:
    obs, action = entries(candidate.spec.obs), entries(candidate.spec.action)
    single_obs, single_sent = single_probes(obs, action, candidate.probe_obs)
    single_action, single_flags = reference.single(single_obs, single_sent)
    walk, overrides = sequence_probes(obs, action)
    sent, actions, flags = reference.sequence(walk, overrides)
    return {
        "single": _section(single_obs, single_sent, single_action, single_flags),
        "sequence": _section(walk, sent, actions, flags),
    }


def _section(
    obs: np.ndarray, last_sent: np.ndarray, action: np.ndarray, flags: np.ndarray
) -> dict[str, np.ndarray]:
    return {"obs": obs, "last_sent": last_sent, "action": action, "flags": flags}


def _manifest(
    run: Run, candidate: PolicyArtefact, fallback: PolicyArtefact, exported: Exported
) -> dict[str, Any]:
    from neorl_core import spec_to_dict
    from neorl_safety.filters import Flag, Limit

    def artefact(found: PolicyArtefact, path: Path) -> dict[str, Any]:
        return {
            "file": f"policies/{path.name}",
            "kind": found.kind,
            "digest": found.digest,
            "metadata": trimmed(found.metadata),
        }

    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "spec": spec_to_dict(candidate.spec),
        "programs": {
            "platforms": list(exported.platforms),
            "calling_convention": exported.calling_convention,
            "inputs": ["*carry", "obs", "last_sent"],
            "outputs": ["*carry", *OUTPUTS],
        },
        "carry": [dataclasses.asdict(entry) for entry in exported.carry],
        "flags": {(flag.name or "").lower(): int(flag) for flag in Flag},
        "limits": {(limit.name or "").lower(): int(limit) for limit in Limit},
        "constraints": run.constraints,
        "provenance": {
            "run": run.name,
            "data_hash": data_hash(run),
            "policy": artefact(candidate, run.candidate),
            "fallback": artefact(fallback, run.fallback),
            "record": trimmed(run.record),
            "versions": {name: importlib.metadata.version(name) for name in VERSIONED},
        },
        "evaluation": evaluation_summary(run.evaluation),
        "verdict": run.verdict,
        "parity": None,
        "signature": None,
    }


def _write_proven(
    out: Path,
    files: dict[str, bytes],
    manifest: dict[str, Any],
    signer: Signer | None,
    *,
    overwrite: bool,
) -> Bundle:
    """Writes an unproven draft, has a fresh process answer its probes, then writes the bundle."""
    draft = out.with_name(f".{out.name}.{secrets.token_hex(4)}.draft")
    write_directory(draft, sealed(files, manifest, signer))
    try:
        manifest["parity"] = prove_parity(draft)
    finally:
        _remove(draft)
    write_directory(out, sealed(files, manifest, signer), replaces=overwrite)
    return read_bundle(out, trusted_key=None if signer is None else signer.public_key)


def sealed(
    files: dict[str, bytes], manifest: dict[str, Any], signer: Signer | None
) -> dict[str, bytes]:
    """All files of a bundle: the given ones, the manifest, the checksums, the signature."""
    complete = {**files, files_of.MANIFEST: dump_canonical(manifest)}
    complete[files_of.CHECKSUMS] = files_of.checksums(complete)
    if signer is not None:
        complete[files_of.SIGNATURE] = signer.sign(complete[files_of.CHECKSUMS])
    return complete


def prove_parity(bundle: Path) -> dict[str, Any]:
    """Has a fresh process without the training stack answer the probes of a bundle.

    Returns:
        Largest differences in units of a channel's size, and the modules that were kept out.

    Raises:
        DeployError: If the process fails, or a difference is above 1e-6 or a flag differs.
    """
    command = [sys.executable, "-m", "neorl_deploy.runtime._parity", str(bundle)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PARITY_SECONDS,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeployError(f"the parity check could not run: {error}") from error
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise DeployError(f"the exported policy does not run in a fresh process: {reason}")
    parity = json.loads(done.stdout.splitlines()[-1])
    if not (parity["worst"] <= PARITY_TOLERANCE and parity["flags_equal"]):
        raise DeployError(
            f"the exported policy differs from the trained one by {parity['worst']:.1e} of a "
            f"channel's size on the probes (allowed {PARITY_TOLERANCE:.0e}), flags "
            f"{'equal' if parity['flags_equal'] else 'different'}; nothing was written"
        )
    return {**parity, "tolerance": PARITY_TOLERANCE}


def _require_place(out: Path, overwrite: bool) -> None:
    if out.suffix != ".bundle":
        raise DeployError(f"{out} should end in .bundle, so that nobody takes it for another thing")
    if not out.parent.is_dir():
        raise DeployError(f"the folder {out.parent} does not exist; make it first")
    if is_in_bundle(out):
        raise DeployError(f"{out} lies in a bundle, which it would break; choose another --out")
    if out.exists() and not overwrite:
        raise DeployError(f"{out} exists; choose another place with --out, or pass --overwrite")
    if out.exists() and not (out / files_of.CHECKSUMS).is_file():
        raise DeployError(f"{out} exists and is no bundle; it is not overwritten")


def _remove(draft: Path) -> None:
    for file in draft.iterdir():
        file.unlink()
    draft.rmdir()
