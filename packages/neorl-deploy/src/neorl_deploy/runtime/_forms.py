"""The forms in which a bundle's step can run: compiled from StableHLO, or with NumPy only."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from neorl_deploy._errors import BundleError
from neorl_deploy.bundle._manifest import ArrayEntry
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.runtime._numpy_form import read_operations
from neorl_deploy.runtime._operations import as_function
from neorl_deploy.runtime._packed import Layout, layout_of, pack, packed_step
from neorl_deploy.runtime._programs import (
    device_for,
    jax_module,
    one_line_of,
    open_programs,
    output_entries,
)

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
    observed, width = len(manifest.obs), len(manifest.action)
    inputs = [
        *manifest.carry,
        ArrayEntry("obs", (observed,), "float32"),
        ArrayEntry("last_sent", (width,), "float32"),
    ]
    operations, fresh = read_operations(bundle.files, inputs, str(bundle.path))
    layout = layout_of([*manifest.carry, *output_entries(bundle)])
    with one_line_of(bundle, "its operations do not run"):
        run = as_function(operations)
        _require_outputs(bundle, layout, run(*fresh, *(_zeros(e) for e in inputs[-2:])))
    n_carry = len(manifest.carry)
    names = [entry.name for entry in manifest.carry]

    def step(words: np.ndarray, obs: np.ndarray, last_sent: np.ndarray) -> np.ndarray:
        carry = (layout.get(words, name) for name in names)
        return pack(layout, run(*carry, obs, last_sent))

    initial = pack(layout, fresh)
    return Form(step, initial, layout, _carry_words(layout, n_carry), np.asarray)


def _require_outputs(bundle: Bundle, layout: Layout, outputs: Sequence[np.ndarray]) -> None:
    stated = [(entry.shape, entry.dtype) for entry in layout.entries]
    if [(array.shape, array.dtype.name) for array in outputs] != stated:
        raise BundleError(f"{bundle.path}: manifest and operations disagree about the carry")


def _zeros(entry: ArrayEntry) -> np.ndarray:
    return np.zeros(entry.shape, entry.dtype)


def _carry_words(layout: Layout, n_carry: int) -> int:
    return layout.ends[n_carry - 1]
