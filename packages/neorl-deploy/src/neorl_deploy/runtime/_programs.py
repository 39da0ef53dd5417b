"""The programs of a bundle, and a check that they are those its manifest describes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from neorl_deploy._errors import BundleError, DeployError, missing_extra
from neorl_deploy.bundle import _files as bundle_files
from neorl_deploy.bundle._manifest import ArrayEntry
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.bundle._seal import program_names

STOPPED = ("tripped", "latched", "stopped")
"""Parts of the supervisor's carry that an emergency stop sets."""

OUTPUTS = ("action", "flags", "limits", "intervention", "alarms")
"""What a step returns after the arrays of the carry."""


class Programs(NamedTuple):
    """The two programs of a bundle, deserialised."""

    step: Any
    initial_carry: Any


def open_programs(bundle: Bundle) -> Programs:
    """Deserialises the programs of a verified bundle.

    Raises:
        BundleError: If they cannot be read, were made for another calling convention or platform,
            or are not those that the manifest describes.
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
    device_for(bundle)
    with one_line_of(bundle, "its programs cannot be read"):
        try:
            programs = Programs(
                export.deserialize(bytearray(bundle.files[bundle_files.STEP])),
                export.deserialize(bytearray(bundle.files[bundle_files.INITIAL_CARRY])),
            )
        except ImportError as error:
            raise missing_extra("running a bundle", "jax", error) from error
        _require_described(bundle, programs)
    return programs


def _require_described(bundle: Bundle, programs: Programs) -> None:
    """Raises unless the programs are those that the manifest describes; nothing is executed."""
    manifest = bundle.manifest
    carry = [(entry.shape, entry.dtype) for entry in manifest.carry]
    names = {entry.name for entry in manifest.carry}
    held = (*(f".supervisor.{part}" for part in (*STOPPED, "trips")), ".age", ".held", ".acted")
    supervised = set(held) <= names
    inputs = [*carry, ((len(manifest.obs),), "float32"), ((len(manifest.action),), "float32")]
    outputs = [*carry, *((entry.shape, entry.dtype) for entry in output_entries(bundle))]
    step, fresh = programs
    same_carry = (
        _arrays(fresh.in_avals) == []
        and _arrays(fresh.out_avals) == carry
        and _arrays(step.in_avals) == inputs
        and _arrays(step.out_avals) == outputs
    )
    if not (supervised and same_carry):
        raise BundleError(f"{bundle.path}: manifest and program disagree about the carry")
    for program in programs:
        stated = manifest.calling_convention, manifest.platforms
        if (program.calling_convention_version, tuple(program.platforms)) != stated:
            raise BundleError(
                f"{bundle.path}: manifest and program disagree about the calling convention or the "
                "platforms"
            )
    if (step.fun_name, fresh.fun_name) != program_names(manifest.document):
        raise BundleError(
            f"{bundle.path}: the programs were not sealed with this manifest; its limits, period, "
            "channels, flags, guard or words were changed after the export: fetch the bundle again"
        )


def output_entries(bundle: Bundle) -> list[ArrayEntry]:
    """Names, shapes and dtypes of what a step returns after the carry."""
    n_action = len(bundle.manifest.action)
    shapes = {"action": (n_action,), "limits": (n_action,), "intervention": (n_action,)}
    real = ("action", "intervention")
    return [
        ArrayEntry(name, shapes.get(name, ()), "float32" if name in real else "uint32")
        for name in OUTPUTS
    ]


@contextlib.contextmanager
def one_line_of(bundle: Bundle, fault: str) -> Iterator[None]:
    """Reports any exception that a damaged program raises as a :class:`BundleError` of one line."""
    try:
        yield
    except DeployError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or "no message"
        kind = type(error).__name__
        raise BundleError(
            f"{bundle.path}: {fault} ({kind}: {reason:.200}); fetch the bundle again"
        ) from error


def _arrays(avals: Sequence[Any]) -> list[tuple[tuple[int, ...], str]]:
    return [(tuple(aval.shape), str(aval.dtype)) for aval in avals]


def device_for(bundle: Bundle) -> Any:
    """The device of this process that a bundle runs on.

    It is JAX's default device if the bundle was exported for it; on a machine with an accelerator
    for which the bundle was not exported, it is the CPU.

    Raises:
        BundleError: If the bundle was exported for none of this process's devices.
    """
    jax = jax_module()
    platforms = bundle.manifest.platforms
    backends = {"gpu" if name in ("cuda", "rocm") else name for name in platforms}
    if jax.default_backend() in backends:
        return jax.local_devices()[0]
    if "cpu" in backends:
        with contextlib.suppress(RuntimeError):  # JAX_PLATFORMS may exclude the CPU.
            return jax.local_devices(backend="cpu")[0]
    raise BundleError(
        f"{bundle.path} was exported for {', '.join(platforms)}; this machine runs "
        f"{jax.default_backend()}: export with --platforms"
    )


def jax_module() -> Any:
    try:
        import jax
    except ImportError as error:
        raise missing_extra("running a bundle", "jax", error) from error
    return jax
