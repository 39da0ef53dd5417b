"""The programs of a bundle, and whether they are what its manifest says."""

from __future__ import annotations

from typing import Any, NamedTuple

from neorl_deploy._errors import BundleError, missing_extra
from neorl_deploy.bundle import _files as bundle_files
from neorl_deploy.bundle._manifest import ArrayEntry
from neorl_deploy.bundle._read import Bundle

STOPPED = ("tripped", "latched", "stopped")
"""Parts of the supervisor's carry that an emergency stop sets."""

TOLD = ("action", "flags", "limits", "intervention", "alarms")
"""What a step returns behind the arrays of the carry."""


class Programs(NamedTuple):
    """The two programs of a bundle, deserialised."""

    step: Any
    initial_carry: Any


def open_programs(bundle: Bundle) -> Programs:
    """Deserialises the programs of a verified bundle.

    Raises:
        BundleError: If they were made for another calling convention or platform.
        DeployError: If the extra ``jax`` is not installed.
    """
    jax = jax_module()
    from jax import export

    manifest = bundle.manifest
    oldest = export.minimum_supported_calling_convention_version
    newest = export.maximum_supported_calling_convention_version
    if not oldest <= manifest.calling_convention <= newest:
        raise BundleError(
            f"{bundle.path} has calling convention {manifest.calling_convention}; this jax "
            f"({jax.__version__}) runs {oldest} to {newest}: export again, or use the jax of the "
            "export"
        )
    if jax.default_backend() not in _backends(manifest.platforms):
        raise BundleError(
            f"{bundle.path} was exported for {', '.join(manifest.platforms)}; this machine runs "
            f"{jax.default_backend()}: export with --platforms"
        )
    try:
        return Programs(
            export.deserialize(bytearray(bundle.files[bundle_files.STEP])),
            export.deserialize(bytearray(bundle.files[bundle_files.INITIAL_CARRY])),
        )
    except ImportError as error:
        raise missing_extra("running a bundle", "jax", error) from error


def require_carry(bundle: Bundle, carry: tuple[Any, ...]) -> None:
    """Raises unless the arrays have the shapes and dtypes that the manifest lists.

    Raises:
        BundleError: If programs and manifest disagree.
    """
    shapes = [(tuple(leaf.shape), str(leaf.dtype)) for leaf in carry]
    names = {entry.name for entry in bundle.manifest.carry}
    supervised = {f".supervisor.{part}" for part in (*STOPPED, "trips")} <= names
    if not supervised or shapes != [_shape(entry) for entry in bundle.manifest.carry]:
        raise BundleError(f"{bundle.path}: manifest and program disagree about the carry")


def told_entries(bundle: Bundle, programs: Programs, n_carry: int) -> list[ArrayEntry]:
    """Names, shapes and dtypes of what a step returns behind the carry."""
    behind = programs.step.out_avals[n_carry:]
    if len(behind) != len(TOLD):
        raise BundleError(
            f"{bundle.path}: a step returns {len(behind)} arrays behind the carry; expected "
            f"{', '.join(TOLD)}"
        )
    return [
        ArrayEntry(name, tuple(aval.shape), str(aval.dtype))
        for name, aval in zip(TOLD, behind, strict=True)
    ]


def _shape(entry: ArrayEntry) -> tuple[tuple[int, ...], str]:
    return entry.shape, entry.dtype


def _backends(platforms: tuple[str, ...]) -> set[str]:
    return {"gpu" if name in ("cuda", "rocm") else name for name in platforms}


def jax_module() -> Any:
    try:
        import jax
    except ImportError as error:
        raise missing_extra("running a bundle", "jax", error) from error
    return jax
