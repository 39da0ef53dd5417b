"""Reads and verifies a bundle without executing anything in it."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from neorl_deploy._errors import BundleError, DeployError
from neorl_deploy.bundle import _files as bundle_files
from neorl_deploy.bundle._manifest import Manifest, parse_manifest
from neorl_deploy.bundle._signature import require_signature
from neorl_deploy.bundle._strict_json import parse_strict
from neorl_deploy.bundle._test_vectors import require_answers_within_limits

VECTOR_ARRAYS = ("obs", "last_sent", "action", "rounding", "flags")
SECTIONS = ("single", "sequence")


@dataclasses.dataclass(frozen=True)
class Bundle:
    """A bundle of which every byte was checked.

    Attributes:
        path: Directory of the bundle.
        manifest: Parsed content of ``manifest.json``.
        files: Content of every file by name, as verified.
        digest: SHA-256 of the checksum list: the identity of the bundle.
        signed_by: Hexadecimal public key of the verified signature, ``None`` if unsigned.
    """

    path: Path
    manifest: Manifest
    files: Mapping[str, bytes]
    digest: str
    signed_by: str | None

    def __repr__(self) -> str:
        """Path, verdict, digest and signer."""
        signed = f"signed by {self.signed_by}" if self.signed_by else "unsigned"
        return f"Bundle({self.path}: {self.manifest.verdict}, sha256:{self.digest}, {signed})"

    def test_vectors(self, section: str) -> dict[str, np.ndarray]:
        """Stored inputs and outputs: ``"single"`` (each from a fresh carry) or ``"sequence"``.

        Returns:
            ``obs``, ``last_sent``, ``action``, ``rounding`` (how much the action may differ by
            float32 rounding) and ``flags``, one row per vector.
        """
        return _vectors(self.path, self.files)[section]


def read_bundle(
    path: str | os.PathLike[str], *, trusted_key: str | None = None, proven: bool = True
) -> Bundle:
    """Reads a bundle and verifies it: files, checksums, signature, manifest and consistency.

    Args:
        path: The directory.
        trusted_key: Hexadecimal public key that must have signed it.
        proven: Whether parity must have been demonstrated; false only during export.

    Returns:
        The verified bundle.

    Raises:
        BundleError: At the first difference from what was exported; one line.
        DeployError: If it is signed and the extra ``sign`` is not installed.
    """
    try:
        return _read(Path(path), trusted_key, proven=proven)
    except DeployError:
        raise
    except Exception as error:  # any fault that an untrusted file provokes is reported in one line
        reason = " ".join(str(error).split()) or "no message"
        raise BundleError(
            f"{path} is not a bundle that can be read ({type(error).__name__}: {reason:.200}); "
            "fetch it again"
        ) from error


def _read(path: Path, trusted_key: str | None, *, proven: bool) -> Bundle:
    files = bundle_files.read_files(path)
    bundle_files.require_checksums(path, files)
    manifest = parse_manifest(
        files[bundle_files.MANIFEST], str(path / bundle_files.MANIFEST), proven=proven
    )
    claim = manifest.document["signature"]
    signature = files.get(bundle_files.SIGNATURE)
    require_signature(path, claim, signature, files[bundle_files.CHECKSUMS], trusted_key)
    _require_consistency(path, manifest, files)
    return Bundle(
        path=path,
        manifest=manifest,
        files=files,
        digest=bundle_files.bundle_digest(files),
        signed_by=None if claim is None else claim["public_key"],
    )


def _require_consistency(path: Path, manifest: Manifest, files: Mapping[str, bytes]) -> None:
    constraints = parse_strict(
        files[bundle_files.CONSTRAINTS], f"{path / bundle_files.CONSTRAINTS}"
    )
    verdict = parse_strict(files[bundle_files.VERDICT], f"{path / bundle_files.VERDICT}")
    if constraints != manifest.document["constraints"]:
        raise _disagree(path, bundle_files.CONSTRAINTS)
    if verdict != manifest.document["verdict"]:
        raise _disagree(path, bundle_files.VERDICT)
    evaluation = parse_strict(files[bundle_files.EVALUATION], f"{path / bundle_files.EVALUATION}")
    if not isinstance(evaluation, dict):
        raise BundleError(f"{path / bundle_files.EVALUATION} holds no JSON object")
    _require_same_guard(path, manifest, files)
    _require_forms(path, manifest, files)
    sections = _vectors(path, files)
    n_obs, n_action = len(manifest.obs), len(manifest.action)
    for section, stored in sections.items():
        count = len(stored["obs"]) if stored["obs"].ndim else 0
        shapes = {name: (count, n_action) for name in VECTOR_ARRAYS}
        shapes |= {"obs": (count, n_obs), "flags": (count,)}
        fit = all(array.shape == shapes[name] for name, array in stored.items())
        kinds = {name: "u" if name == "flags" else "f" for name in VECTOR_ARRAYS}
        typed = all(
            array.dtype.kind == kinds[name] and array.dtype.itemsize == 4
            for name, array in stored.items()
        )
        if not (count and fit and typed):
            raise BundleError(f"{path}: the test vectors ({section}) do not match the channels")
    require_answers_within_limits(str(path), manifest, sections)


def _disagree(path: Path, name: str) -> BundleError:
    return BundleError(
        f"{path}: manifest and {name} disagree; somebody changed one and wrote the checksums anew, "
        "so ask whoever exported it for the bundle and its digest"
    )


def _require_same_guard(path: Path, manifest: Manifest, files: Mapping[str, bytes]) -> None:
    sealed = parse_strict(files[bundle_files.GUARD], f"{path / bundle_files.GUARD}")
    stated = manifest.document["guard"]
    try:
        named = [monitor["name"] for monitor in sealed["monitors"]["monitors"]]
        same = named == list(manifest.monitors) and all(
            sealed[name] == stated[name] for name in ("supervisor", "fallbacks", "max_age")
        )
    except (KeyError, TypeError):
        same = False
    if not same:
        raise _disagree(path, bundle_files.GUARD)


def _require_forms(path: Path, manifest: Manifest, files: Mapping[str, bytes]) -> None:
    for form, names in bundle_files.FORMS.items():
        present = {name in files for name in names}
        if present != {form in manifest.forms}:
            has, there = ("a", "not all there") if form in manifest.forms else ("no", "there")
            raise BundleError(
                f"{path}: the manifest says that this bundle has {has} {form!r} form, but its "
                f"files ({', '.join(names)}) are {there}; fetch the bundle again"
            )


def _vectors(path: Path, files: Mapping[str, bytes]) -> dict[str, dict[str, np.ndarray]]:
    """The test vectors, by section and name."""
    source = f"{path / bundle_files.TEST_VECTORS}"
    arrays = bundle_files.read_arrays(files, bundle_files.TEST_VECTORS, source)
    expected = {f"{section}_{name}" for section in SECTIONS for name in VECTOR_ARRAYS}
    if set(arrays) != expected:
        raise BundleError(f"{source} holds {sorted(arrays)}, expected {sorted(expected)}")
    return {
        section: {name: arrays[f"{section}_{name}"] for name in VECTOR_ARRAYS}
        for section in SECTIONS
    }
