"""The forms in which a bundle's step can run: compiled from StableHLO, or with NumPy only."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from neorl_deploy._errors import BundleError, DeployError, needs
from neorl_deploy.bundle import _files as bundle_files
from neorl_deploy.bundle._files import program_names, seal
from neorl_deploy.bundle._manifest import ArrayEntry
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.runtime._operations import Operations, as_function, read_operations

# Packs the arrays passed between steps into one, because each array costs its own dispatch.


WORD = 4


class Layout(NamedTuple):
    """Position of every array in the words.

    Attributes:
        entries: Names, shapes and dtypes, in order.
        ends: Index after the last word of each array.
        places: Words, shape and dtype of every array by name.
    """

    entries: tuple[ArrayEntry, ...]
    ends: tuple[int, ...]
    places: Mapping[str, tuple[slice, tuple[int, ...], np.dtype]]

    def get(self, words: np.ndarray, name: str) -> np.ndarray:
        """A copy of one array."""
        at, shape, dtype = self.places[name]
        return _from_words(words[at].copy(), shape, dtype)

    def set(self, words: np.ndarray, name: str, value: np.ndarray) -> np.ndarray:
        """A copy of the words with another value for one array."""
        at, _, dtype = self.places[name]
        changed = np.array(words)
        changed[at] = _to_words(np.asarray(value, dtype))
        return changed


def layout_of(entries: Sequence[ArrayEntry]) -> Layout:
    """The layout of consecutive arrays; every element takes one word, even a boolean."""
    sizes = [
        int(np.prod(entry.shape, dtype=int)) * max(1, np.dtype(entry.dtype).itemsize // WORD)
        for entry in entries
    ]
    ends = tuple(int(end) for end in np.cumsum(sizes, dtype=int))
    places = {
        entry.name: (slice(end - size, end), entry.shape, np.dtype(entry.dtype))
        for entry, size, end in zip(entries, sizes, ends, strict=True)
    }
    return Layout(tuple(entries), ends, places)


def pack(layout: Layout, arrays: Sequence[Any]) -> np.ndarray:
    """The first arrays of a layout as words on the host, with zeros for the rest."""
    words = np.zeros(layout.ends[-1], np.uint32)
    given = np.concatenate([_to_words(np.asarray(array)) for array in arrays])
    words[: len(given)] = given
    return words


def packed_step(
    step: Callable[..., Sequence[Any]], layout: Layout, n_carry: int
) -> Callable[[Any, Any, Any], Any]:
    """``step`` of many arrays as a compiled function of three that returns one.

    Args:
        step: ``(*carry, obs, last_sent) -> (*carry, *outputs)``.
        layout: Layout of all that it returns, the carry first.
        n_carry: Number of arrays of the carry.

    Returns:
        ``(words, obs, last_sent) -> words``; on input only the words of the carry matter.
    """
    import jax
    import jax.numpy as jnp

    def from_words(words: Any, entry: ArrayEntry) -> Any:
        dtype = np.dtype(entry.dtype)
        if dtype == np.bool_:
            return (words != 0).reshape(entry.shape)
        if dtype.itemsize > WORD:
            words = words.reshape(*entry.shape, dtype.itemsize // WORD)
            return jax.lax.bitcast_convert_type(words, dtype)
        if dtype.itemsize < WORD:
            words = words.astype(f"uint{8 * dtype.itemsize}")
        return jax.lax.bitcast_convert_type(words, dtype).reshape(entry.shape)

    def to_words(array: Any) -> Any:
        if array.dtype == jnp.bool_:
            return array.astype(jnp.uint32).ravel()
        small = array.dtype.itemsize < WORD
        unsigned = f"uint{8 * array.dtype.itemsize}" if small else jnp.uint32
        return jax.lax.bitcast_convert_type(array, unsigned).astype(jnp.uint32).ravel()

    def run(words: Any, obs: Any, last_sent: Any) -> Any:
        ends, entries = layout.ends[:n_carry], layout.entries[:n_carry]
        arrays = [
            from_words(words[begin:end], entry)
            for begin, end, entry in zip((0, *ends), ends, entries, strict=False)
        ]
        return jnp.concatenate([to_words(array) for array in step(*arrays, obs, last_sent)])

    return jax.jit(run)


def _to_words(array: np.ndarray) -> np.ndarray:
    if array.dtype == np.bool_:
        return array.astype(np.uint32).ravel()
    unsigned = np.dtype(f"uint{8 * min(array.dtype.itemsize, WORD)}")
    return np.ascontiguousarray(array).reshape(-1).view(unsigned).astype(np.uint32)


def _from_words(words: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.itemsize == WORD:
        return words.view(dtype).reshape(shape)
    if dtype == np.bool_:
        return (words != 0).reshape(shape)
    if dtype.itemsize < WORD:
        words = words.astype(f"uint{8 * dtype.itemsize}")
    return words.view(dtype).reshape(shape)


# The programs of a bundle, and a check that they are those its manifest describes.


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
            f"({jax.__version__}) runs {oldest} to {newest}: {_advice(bundle)}"
        )
    device_for(bundle)
    with one_line_of(bundle, "its programs cannot be read"):
        with needs("running a bundle", "jax"):
            programs = Programs(
                export.deserialize(bytearray(bundle.files[bundle_files.STEP])),
                export.deserialize(bytearray(bundle.files[bundle_files.INITIAL_CARRY])),
            )
        _require_described(bundle, programs)
    return programs


def _require_described(bundle: Bundle, programs: Programs) -> None:
    """Raises unless the programs are those that the manifest describes; nothing is executed."""
    manifest = bundle.manifest
    carry = [(entry.shape, entry.dtype) for entry in manifest.carry]
    names = {entry.name for entry in manifest.carry}
    held = (
        *(f".supervisor.{part}" for part in (*STOPPED, "trips")),
        ".age",
        ".held",
        ".acted",
        ".band",
    )
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
        advice = _advice(bundle) if fault.startswith("its programs") else FETCH
        raise BundleError(f"{bundle.path}: {fault} ({kind}: {reason:.200}); {advice}") from error


FETCH = "fetch the bundle again"


def _advice(bundle: Bundle) -> str:
    """What helps with programs that do not open: not the same file, if another JAX wrote it."""
    manifest = bundle.manifest
    installed = getattr(sys.modules.get("jax"), "__version__", manifest.jax)
    if manifest.jax in ("", installed):
        return FETCH
    numpy = manifest.form_of_record == "numpy"
    ways = "run it with --form numpy, or `neorl-deploy renew` it" if numpy else "export it again"
    return f"it is by jax {manifest.jax}, and this is jax {installed}: {ways}, or use that jax"


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
    with needs("running a bundle", "jax"):
        import jax
    return jax


FormName = Literal["stablehlo", "numpy"]
"""``"stablehlo"`` needs the extra ``jax``; ``"numpy"`` needs no extra, if the bundle has it."""


class Form(NamedTuple):
    """An executable step.

    Attributes:
        step: ``(words, obs, last_sent) -> words``; on input only the words of the carry matter.
        initial: Words of a fresh episode, in the form that ``step`` takes.
        layout: Position of every array in the words.
        n_carry_words: Number of words that contain the carry.
        place: Converts host words to the form that ``step`` takes without recompiling.
    """

    step: Callable[[Any, Any, Any], Any]
    initial: Any
    layout: Layout
    n_carry_words: int
    place: Callable[[np.ndarray], Any]


def open_form(bundle: Bundle, form: FormName) -> Form:
    """Opens a form of a verified bundle.

    Raises:
        BundleError: If the bundle does not have the form, or it cannot be read or run.
        DeployError: If it needs an extra that is not installed.
        ValueError: If there is no form of that name.
    """
    if form == "stablehlo":
        return _compiled_form(bundle)
    if form == "numpy":
        return _with_numpy(bundle)
    raise ValueError(f'form must be "stablehlo" or "numpy", got {form!r}')


def _compiled_form(bundle: Bundle) -> Form:
    programs, device = open_programs(bundle), device_for(bundle)
    # Place the words where a step leaves them, so that one compiled program takes either.
    place = functools.partial(jax_module().device_put, device=device)
    with one_line_of(bundle, "its programs do not run"), jax_module().default_device(device):
        fresh = tuple(programs.initial_carry.call())
        layout = layout_of([*bundle.manifest.carry, *output_entries(bundle)])
        step = packed_step(programs.step.call, layout, len(fresh))
        initial = place(pack(layout, fresh))
    return Form(step, initial, layout, _carry_words(layout, len(fresh)), place)


def _with_numpy(bundle: Bundle) -> Form:
    manifest = bundle.manifest
    operations, fresh = sealed_operations(bundle)
    layout = layout_of([*manifest.carry, *output_entries(bundle)])
    with one_line_of(bundle, "its operations do not run"):
        run = as_function(operations)
        zeros = (np.zeros(entry.shape, entry.dtype) for entry in step_inputs(bundle)[-2:])
        _require_outputs(bundle, layout, run(*fresh, *zeros))
    n_carry = len(manifest.carry)
    names = [entry.name for entry in manifest.carry]

    def step(words: np.ndarray, obs: np.ndarray, last_sent: np.ndarray) -> np.ndarray:
        carry = (layout.get(words, name) for name in names)
        return pack(layout, run(*carry, flushed(obs), flushed(last_sent)))

    initial = pack(layout, fresh)
    sizes = np.diff((0, *layout.ends))
    real = np.repeat([entry.dtype == "float32" for entry in layout.entries], sizes)

    def place(words: np.ndarray) -> np.ndarray:
        # A compiled program stores what it was given, and takes it for zero: see `flushed`.
        tiny = real & (words & np.uint32(0x7F800000) == 0)
        return np.where(tiny, words & np.uint32(0x80000000), words)

    return Form(step, initial, layout, _carry_words(layout, n_carry), place)


def flushed(array: np.ndarray) -> np.ndarray:
    """An array with zero for numbers too small for full precision, as compiled programs see it.

    Otherwise a reading of 1e-40 after 0 would have moved for NumPy, and be frozen for a processor
    that takes it for zero.
    """
    return np.where(np.abs(array) < np.finfo(np.float32).tiny, np.float32(0), array)


def step_inputs(bundle: Bundle) -> list[ArrayEntry]:
    """Names, shapes and dtypes of what a step takes, the carry first."""
    manifest = bundle.manifest
    return [
        *manifest.carry,
        ArrayEntry("obs", (len(manifest.obs),), "float32"),
        ArrayEntry("last_sent", (len(manifest.action),), "float32"),
    ]


def sealed_operations(bundle: Bundle) -> tuple[Operations, list[np.ndarray]]:
    """The operations of a bundle's NumPy form and its fresh carry, as sealed.

    Raises:
        BundleError: If there is no such form, or it is damaged or of another manifest.
    """
    sealed = seal(bundle.manifest.document)
    return read_operations(bundle.files, step_inputs(bundle), str(bundle.path), sealed)


def _require_outputs(bundle: Bundle, layout: Layout, outputs: Sequence[np.ndarray]) -> None:
    stated = [(entry.shape, entry.dtype) for entry in layout.entries]
    if [(array.shape, array.dtype.name) for array in outputs] != stated:
        raise BundleError(f"{bundle.path}: manifest and operations disagree about the carry")


def _carry_words(layout: Layout, n_carry: int) -> int:
    return layout.ends[n_carry - 1]
