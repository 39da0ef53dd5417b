"""The stages of an export: read the run, answer the test vectors, assemble, prove, write."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neorl_deploy._errors import DeployError, NotDeployable, needs
from neorl_deploy.bundle import _files as bundle_files
from neorl_deploy.bundle._files import program_names
from neorl_deploy.bundle._manifest import KIND, PARITY_TOLERANCE, VERSION, ArrayEntry
from neorl_deploy.bundle._promise import promised_until
from neorl_deploy.bundle._read import Bundle, read_bundle
from neorl_deploy.bundle._signature import Signer
from neorl_deploy.bundle._strict_json import dump_canonical, dump_compact, head
from neorl_deploy.bundle._test_vectors import sequence_vectors, single_vectors, vector_archive
from neorl_deploy.export._numpy_form import numpy_form
from neorl_deploy.export._onnx import policy_onnx
from neorl_deploy.export._read import (
    GuardedParts,
    Reference,
    entries,
    guarded_policy,
    perturbed_observations,
)
from neorl_deploy.export._stablehlo import Exported, carry_entries, export_programs
from neorl_deploy.runtime._forms import OUTPUTS
from neorl_deploy.runtime._load import note_trial
from neorl_deploy.training_run import BUNDLE, Run, data_hash, evaluation_summary, read_run, trim

if TYPE_CHECKING:
    from neorl_agents import PolicyArtefact
    from neorl_core import Spec


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Options of an export.

    Attributes:
        out: Directory of the bundle; ``None`` for ``policy.bundle`` in the run.
        policy: Policy to export instead of the verdict's candidate.
        require_deploy: Refuse to export, and write nothing, unless the verdict is "deploy".
        overwrite: Replace an existing bundle.
        platforms: Platforms for which to lower the programs.
        sign_key: File with the private key for signing.
        onnx: Whether to also write the policy, without its guard, as ONNX (extra ``onnx``).
    """

    out: Path | None = None
    policy: str | None = None
    require_deploy: bool = False
    overwrite: bool = False
    platforms: tuple[str, ...] = ("cpu",)
    sign_key: Path | None = None
    onnx: bool = False


def _silent(line: str) -> None:
    """Ignores progress messages; the default."""


def export_run(
    path: str | os.PathLike[str],
    options: ExportOptions = ExportOptions(),
    *,
    progress: Callable[[str], None] = _silent,
) -> Bundle:
    """Exports the candidate of a finished run, wrapped in its guard, as a bundle.

    A policy whose verdict is "do not deploy" or "cannot tell" is exported as well, so that it can
    be tried in shadow mode; the manifest records the verdict.

    Args:
        path: The run directory.
        options: Output directory, policy, platforms, key and required verdict.
        progress: Called with one line at the beginning of each stage; a policy with many layers,
            such as ``caps``, takes minutes.

    Returns:
        The written bundle, verified.

    Raises:
        NotDeployable: If ``require_deploy`` is set and the verdict is not "deploy".
        DeployError: If the run is unfinished or damaged, its parts do not fit together, parity is
            not achieved, or the bundle cannot be written. Nothing is left behind.
    """
    run = read_run(Path(path), options.policy)
    if options.require_deploy and run.answer != "deploy":
        raise NotDeployable(f"the verdict of {run.path} is {run.answer!r}; nothing was written")
    out = run.path / BUNDLE if options.out is None else options.out
    require_place(out, overwrite=options.overwrite)
    signer = None if options.sign_key is None else Signer(options.sign_key)
    progress(f"1 of 4: reading {run.candidate.stem} of {run.path} and its guard")
    with _on_cpu():
        guarded = guarded_policy(run)
        manifest = assembled_manifest(run, guarded, carry_entries(guarded.policy))
        progress(f"2 of 4: lowering the programs for {', '.join(options.platforms)}")
        exported = export_programs(
            guarded.policy, guarded.spec.n_obs, options.platforms, program_names(manifest)
        )
        progress("3 of 4: answering the test vectors")
        vectors = answered_vectors(Reference(guarded.policy), guarded.candidate)
        further = {bundle_files.ONNX: policy_onnx(guarded.candidate)} if options.onnx else {}
        numpy_files, why_not = numpy_form(guarded, manifest, vectors)
    progress("4 of 4: comparing the answers of a fresh process")
    files = assembled_files(run, exported, vectors) | numpy_files | further
    manifest["programs"] = programs_entry(exported, files, why_not)
    if signer is not None:
        manifest["signature"] = signer.claim
    return write_proven(out, files, manifest, signer, overwrite=options.overwrite)


def _on_cpu() -> contextlib.AbstractContextManager[Any]:
    """Computes answers on the CPU, where parity is checked, even if an accelerator is present."""
    with needs("an export", "export"):
        import jax
    return jax.default_device(jax.devices("cpu")[0])


# Second stage of an export: assembles the bundle's files and its manifest.


VERSIONED = ("neorl-core", "neorl-safety", "neorl-agents", "neorl-deploy", "jax", "jaxlib", "numpy")
"""Distributions whose versions are recorded in the provenance."""

Sections = dict[str, dict[str, np.ndarray]]


def answered_vectors(reference: Reference, candidate: PolicyArtefact) -> Sections:
    """Test inputs, including extreme cases, with the training side's answers, by section."""
    obs, action = entries(candidate.spec.obs), entries(candidate.spec.action)
    single_obs, single_sent = single_vectors(obs, action, candidate.parity_obs)
    single_actions, single_flags = reference.single(single_obs, single_sent)
    perturbations = perturbed_observations(obs, single_obs)
    single_perturbed = [
        reference.single(rows, single_sent, seed)[0] for seed, rows in perturbations
    ]
    sequence_obs, overrides = sequence_vectors(obs, action)
    sent, actions, flags = reference.sequence(sequence_obs, overrides)
    perturbations = perturbed_observations(obs, sequence_obs)
    perturbed = [reference.sequence(rows, overrides, seed)[1] for seed, rows in perturbations]
    return {
        "single": _section(single_obs, single_sent, single_actions, single_flags, single_perturbed),
        "sequence": _section(sequence_obs, sent, actions, flags, perturbed),
    }


def assembled_files(run: Run, exported: Exported, vectors: Sections) -> dict[str, bytes]:
    """The sealed files of a bundle by name, except for the manifest."""
    return {
        bundle_files.STEP: exported.step,
        bundle_files.INITIAL_CARRY: exported.initial_carry,
        bundle_files.TEST_VECTORS: vector_archive(vectors),
        bundle_files.CONSTRAINTS: dump_canonical(run.constraints),
        bundle_files.GUARD: dump_compact(run.guard),
        bundle_files.VERDICT: dump_canonical(run.verdict),
        bundle_files.EVALUATION: dump_compact(run.evaluation),
    }


def assembled_manifest(
    run: Run, guarded: GuardedParts, carry: tuple[ArrayEntry, ...]
) -> dict[str, Any]:
    """The manifest of a bundle, before programs, parity and signature are known."""
    from neorl_core import spec_to_dict
    from neorl_safety.constraints import describe_constraints
    from neorl_safety.filters import Flag, Limit

    return {
        **head(KIND, VERSION),
        "spec": spec_to_dict(guarded.spec),
        "programs": None,
        "carry": [dataclasses.asdict(entry) for entry in carry],
        "flags": {(flag.name or "").lower(): int(flag) for flag in Flag},
        "limits": {(limit.name or "").lower(): int(limit) for limit in Limit},
        "constraints": run.constraints,
        "constraint_words": describe_constraints(guarded.constraints),
        "guard": _guard_entry(run, guarded),
        "provenance": {
            "run": run.name,
            "data_hash": data_hash(run.record),
            "policy": _artefact_entry(guarded.candidate, run.candidate),
            "fallback": _artefact_entry(guarded.fallback, run.fallback),
            "record": trim(run.record),
            "versions": {name: importlib.metadata.version(name) for name in VERSIONED},
        },
        "evaluation": evaluation_summary(run.evaluation),
        "verdict": run.verdict,
        "parity": None,
        "signature": None,
    }


def programs_entry(
    exported: Exported, files: Mapping[str, bytes], why_not: str = ""
) -> dict[str, Any]:
    """The manifest's entry about the programs' origin and convention, and the additional forms."""
    until = promised_until(exported.jax)
    return {
        "forms": [name for name, parts in bundle_files.FORMS.items() if parts[0] in files],
        "form_of_record": "stablehlo" if why_not else "numpy",
        "without_numpy": why_not,
        "jax": exported.jax,
        "promised_until": None if until is None else until.isoformat(),
        "platforms": list(exported.platforms),
        "calling_convention": exported.calling_convention,
        "inputs": ["*carry", "obs", "last_sent"],
        "outputs": ["*carry", *OUTPUTS],
    }


def _guard_entry(run: Run, guarded: GuardedParts) -> dict[str, Any]:
    """The part of ``guard.json`` that the manifest repeats: all but the monitors' parameters."""
    from neorl_safety.guards import describe_settings

    fields = ("kind", "name", "false_alarms", "episodes")
    monitors = run.guard["monitors"]["monitors"]
    return {
        **{name: run.guard[name] for name in ("supervisor", "fallbacks", "max_age")},
        "monitors": [{name: monitor[name] for name in fields} for monitor in monitors],
        "words": describe_settings(guarded.settings, guarded.spec),
    }


def _section(
    obs: np.ndarray,
    last_sent: np.ndarray,
    action: np.ndarray,
    flags: np.ndarray,
    perturbed: list[np.ndarray],
) -> dict[str, np.ndarray]:
    """One section; ``rounding`` is how far actions move when the inputs move by their last bit."""
    rounding = np.fmax.reduce([np.abs(other - action) for other in perturbed])
    columns = {"obs": obs, "last_sent": last_sent, "action": action}
    return {**columns, "rounding": rounding, "flags": flags}


def _artefact_entry(artefact: PolicyArtefact, path: Path) -> dict[str, Any]:
    return {
        "file": f"policies/{path.name}",
        "kind": artefact.kind,
        "words": _policy_text(artefact),
        "digest": artefact.digest,
        "metadata": trim(artefact.metadata),
    }


def _policy_text(artefact: PolicyArtefact) -> str:
    """Describes what a constant policy holds, or the loops and interlocks of a PID; else empty."""
    spec = artefact.spec
    policy: Any = artefact.policy  # guaranteed by the kind
    if artefact.kind == "constant":
        held = zip(spec.action, policy.action, strict=True)
        values = ", ".join(f"{c.name} {_number(value)} {c.unit}" for c, value in held)
        return f"always {values}"
    if artefact.kind == "pid":
        loops = [
            f"{spec.action[i].name} holds {spec.obs[j].name} at {_number(setpoint)} "
            f"{spec.obs[j].unit}"
            for i, (j, setpoint) in enumerate(zip(policy.measured, policy.setpoint, strict=True))
        ]
        return "; ".join([*loops, *_interlock_text(policy, spec)])
    return ""


def _interlock_text(bank: Any, spec: Spec) -> Iterator[str]:
    """The caps that a bank of PID loops applies to its outputs; its setpoints do not show them."""
    outputs, inputs = bank.override_output, bank.override_measured
    numbers = zip(bank.override_cap, bank.override_below, strict=True)
    for i, j, (cap, below) in zip(outputs, inputs, numbers, strict=True):
        output, measured = spec.action[i], spec.obs[j]
        yield (
            f"{output.name} at most {_number(cap)} {output.unit} while {measured.name} is below "
            f"{_number(below)} {measured.unit} or lost"
        )


def _number(value: Any) -> str:
    return f"{float(value):g}"


# Writes a directory completely or not at all.


def write_directory(
    path: Path,
    files: Mapping[str, bytes],
    *,
    replaces: bool = False,
    shown_path: Path | None = None,
) -> None:
    """Writes files into a new directory that appears under its name once it is complete.

    Everything is written into a hidden sibling, flushed to disk and renamed. With ``replaces``, an
    old directory is moved aside first and restored if the rename fails. An error names
    ``shown_path``, if given, and leaves nothing new behind.
    """
    if path.is_symlink() or (path.exists() and not replaces):
        raise DeployError(f"{path} exists; choose another place with --out, or pass --overwrite")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir()
        for name, data in files.items():
            _write_flushed(temporary / name, data)
        _flush_directory(temporary)
        _put_in_place(temporary, path)
    except OSError as error:
        raise DeployError(
            f"cannot write {shown_path or path}: {error.strerror}; nothing was left behind, check "
            "free space and permissions"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _flush_directory(path.parent)


def _put_in_place(temporary: Path, path: Path) -> None:
    if not path.exists():
        os.rename(temporary, path)
        return
    # A directory cannot be renamed over one that holds files.
    backup = path.with_name(f".{path.name}.{secrets.token_hex(4)}.old")
    os.rename(path, backup)
    try:
        os.rename(temporary, path)
    except OSError:
        os.rename(backup, path)
        raise
    shutil.rmtree(backup, ignore_errors=True)


def _write_flushed(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush_directory(path: Path) -> None:
    if os.name == "nt":  # Windows cannot open directories, and makes names durable itself
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Third stage of an export: a fresh process checks that the exported programs act as trained.


PARITY_SECONDS = 300


def prove_parity(bundle: Path) -> dict[str, Any]:
    """Answers a draft's test vectors in a fresh process without the training stack.

    Returns:
        Largest differences relative to a channel's size, and the modules that were kept out.

    Raises:
        DeployError: If the process fails, a difference is above 1e-6 or a flag differs.
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
            f"channel's size on the test vectors (allowed {PARITY_TOLERANCE:.0e}), flags "
            f"{'equal' if parity['flags_equal'] else 'different'}; nothing was written"
        )
    return {**parity, "tolerance": PARITY_TOLERANCE}


# Last stage of an export: checks a draft, then writes the bundle completely or not at all.


def require_place(out: Path, *, overwrite: bool) -> None:
    """Refuses a wrong suffix, a missing parent, a place in a bundle, or one that is taken."""
    if out.suffix != ".bundle":
        raise DeployError(
            f"{out} should end in .bundle, so that nobody mistakes it for something else"
        )
    if not out.parent.is_dir():
        raise DeployError(f"the folder {out.parent} does not exist; make it first")
    if bundle_files.is_in_bundle(out):
        raise DeployError(f"{out} lies inside a bundle and would damage it; choose another --out")
    if out.exists() and not overwrite:
        raise DeployError(f"{out} exists; choose another place with --out, or pass --overwrite")
    if out.exists() and not (out / bundle_files.CHECKSUMS).is_file():
        raise DeployError(f"{out} exists and is not a bundle, so it is not overwritten")


def write_proven(
    out: Path,
    files: dict[str, bytes],
    manifest: dict[str, Any],
    signer: Signer | None,
    *,
    overwrite: bool,
) -> Bundle:
    """Writes an unproven draft, has its test vectors answered, then writes the bundle.

    The parity results are filled into the manifest here. The written bundle is read back and
    verified; an error leaves nothing behind.
    """
    draft = out.with_name(f".{out.name}.{secrets.token_hex(4)}.draft")
    write_directory(draft, sealed_files(files, manifest, signer), shown_path=out)
    try:
        manifest["parity"] = prove_parity(draft)
    finally:
        _remove(draft)
    write_directory(out, sealed_files(files, manifest, signer), replaces=overwrite)
    bundle = read_bundle(out, trusted_key=None if signer is None else signer.public_key)
    note_trial(bundle)
    return bundle


def sealed_files(
    files: dict[str, bytes], manifest: dict[str, Any], signer: Signer | None
) -> dict[str, bytes]:
    """All files of a bundle: the given ones, the manifest, the checksums and the signature."""
    complete = {**files, bundle_files.MANIFEST: dump_canonical(manifest)}
    complete[bundle_files.CHECKSUMS] = bundle_files.checksums(complete)
    if signer is not None:
        complete[bundle_files.SIGNATURE] = signer.sign(complete[bundle_files.CHECKSUMS])
    return complete


def _remove(draft: Path) -> None:
    for file in draft.iterdir():
        file.unlink()
    draft.rmdir()
