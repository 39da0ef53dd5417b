"""Last stage of an export: checks a draft, then writes the bundle completely or not at all."""

import secrets
from pathlib import Path
from typing import Any

from neorl_deploy._errors import DeployError
from neorl_deploy.bundle import _files as bundle_files
from neorl_deploy.bundle._read import Bundle, read_bundle
from neorl_deploy.bundle._signature import Signer
from neorl_deploy.bundle._strict_json import dump_canonical
from neorl_deploy.export._atomic_directory import write_directory
from neorl_deploy.export._prove import prove_parity
from neorl_deploy.runtime._trial import note_trial


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
