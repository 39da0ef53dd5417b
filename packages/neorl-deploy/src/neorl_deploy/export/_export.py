"""The stages of an export: read the run, answer the test vectors, assemble, prove, write."""

import contextlib
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neorl_deploy._errors import NotDeployable, needs
from neorl_deploy.bundle import _files as bundle_files
from neorl_deploy.bundle._files import program_names
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.bundle._signature import Signer
from neorl_deploy.export._assemble import (
    answered_vectors,
    assembled_files,
    assembled_manifest,
    programs_entry,
    require_place,
    write_proven,
)
from neorl_deploy.export._numpy_form import numpy_form
from neorl_deploy.export._onnx import policy_onnx
from neorl_deploy.export._read import Reference, guarded_policy
from neorl_deploy.export._stablehlo import carry_entries, export_programs
from neorl_deploy.training_run import BUNDLE, read_run


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
