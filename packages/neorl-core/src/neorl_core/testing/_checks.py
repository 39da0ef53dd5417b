"""The checks that every row of a table passes."""

import contextlib
import functools
import math
import re
from collections.abc import Callable
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.testing._compare import is_float, is_key, to_numpy
from neorl_core.testing._input_laws import (
    counts_are_integers,
    hyperparameters_leave_dtypes,
    integers_are_floats,
    lists_are_arrays,
    one_number_is_no_array,
    one_numbers,
    sums_are_wide,
)
from neorl_core.testing._laws import (
    batch_independent,
    dtype_preserved,
    no_recompile,
    pure,
    rows_match,
)
from neorl_core.testing._slopes import slopes_agree
from neorl_core.testing._table import Refusal, Row
from neorl_core.testing._transforms import ROWS as ROW_COUNT
from neorl_core.testing._transforms import (
    as_rows,
    everywhere,
    finite_grad,
    split_options,
    take,
    variants,
)

INPUT_LAWS = {
    "integers": integers_are_floats,
    "lists": lists_are_arrays,
    "sums": sums_are_wide,
    "scalars": one_number_is_no_array,
}


def mapped(fn: Callable[..., Any], *rows: Any, **options: Any) -> Any:
    """``fn`` over the rows, by the compiled ``vmap`` that :func:`everywhere` uses."""
    traced, static = split_options(options)
    return variants(fn, static).batch_jit(as_rows(rows), traced)


def check_values(row: Row) -> None:
    """Checks oracle, laws and finite gradients on every draw, and the slopes on one.

    The oracle is compared with jit of vmap; :func:`check_transformations` compares the others. The
    draws are :attr:`Row.draws`, unless the Hypothesis profile asks for random ones: those are
    searched by Hypothesis, in every shape.
    """

    def check(sample: tuple, options: dict) -> None:
        _check_formula(row, sample, options)
        for law in row.laws:
            law(*sample, **options)

    if row.differentiable and row.oracle is not None and "slope" not in row.exempt:
        sample, options = row.typical
        slopes_agree(row.function, row.oracle, *sample, **options)
    if not hypothesis.settings().derandomize:
        hypothesis.given(row.sample, row.drawn_options())(check)()
        return
    for sample, options in row.draws:
        try:
            check(sample, options)
        except AssertionError as error:
            error.add_note(f"{row} was called with {sample} and {options}")
            raise


def check_transformations(row: Row) -> None:
    """Checks that eager, jit, vmap and jit of vmap agree on one draw; slow to compile."""
    if "everywhere" not in row.exempt:
        sample, options = row.typical
        everywhere(row.function, *sample, rtol=row.rtol, atol=row.atol, **options)


def check_edges(row: Row) -> None:
    """Checks oracle and finite gradients at the declared edges; compiled only (new shapes)."""
    for edge in row.edges:
        stacked = jax.tree.map(_repeat, edge.args)
        _check_formula(row, stacked, dict(edge.options))


def check_form(row: Row) -> None:
    """Checks purity, independent rows, one trace for equal shapes, dtypes, and accepted inputs.

    Uses the simplest draw, and only traces, except to check that rows are independent.
    """
    fn, (sample, options) = row.function, row.simplest
    pure(fn, *sample, **options)
    if "batch" not in row.exempt:
        batch_independent(fn, *sample, **options)
    if "recompile" not in row.exempt:
        stacked = as_rows(sample)
        no_recompile(fn, take(stacked, 0), take(stacked, 1), **options)
    if "dtype" not in row.exempt:
        dtype_preserved(fn, *sample, dtypes=row.dtypes, **options)
        hyperparameters_leave_dtypes(fn, *sample, **options)
    counts_are_integers(fn, *sample, **options)
    for exemption, law in INPUT_LAWS.items():
        if exemption not in row.exempt:
            law(fn, *sample, **options)


def check_refusals(row: Row) -> None:
    """Checks that every declared misuse raises the declared error with the declared text.

    Raises:
        AssertionError: If one does not.
    """
    for refusal in row.refuses:
        with pytest.raises(refusal.error, match=re.escape(refusal.match)):
            row.function(*refusal.args, **refusal.options)


def check_bad_values(row: Row) -> None:
    """Checks that a bad value raises an error if concrete and gives NaN in a compiled program.

    NaN is passed for every single-number option, and every refused call is compiled. Calls that
    raise an error while tracing, because of their shapes, pass, and so do results without floats.

    Raises:
        AssertionError: If anything else comes out.
    """
    sample, options = row.simplest
    if "scalars" not in row.exempt:
        for name in one_numbers(row.function, options):
            bad = options | {name: math.nan}
            for call, arguments in (
                (row.function, take(as_rows(sample), 0)),
                (_mapped_by(row), sample),
            ):
                with contextlib.suppress(ValueError):
                    result = call(*arguments, **bad)
                    assert _shows_nan(result), f"{row} with {name}=nan gives {result}"
    for refusal in row.refuses:
        if not refusal.traced:
            _check_traced(row, refusal)


def _check_traced(row: Row, refusal: Refusal) -> None:
    try:
        rows = jax.tree.map(_repeat, refusal.args)
        result = mapped(row.function, *rows, **refusal.options)
    except Exception:  # an error while tracing, whatever its text
        return
    assert _shows_nan(result), f"{row}, {refusal.match}: compiled, it gives {result}"


def _shows_nan(tree: Any) -> bool:
    floats = [leaf for leaf in jax.tree.leaves(to_numpy(tree)) if is_float(leaf)]
    return not floats or any(np.isnan(leaf).any() for leaf in floats)


def _mapped_by(row: Row) -> Callable[..., Any]:
    return functools.partial(mapped, row.function)


def _repeat(leaf: Any) -> Any:
    if is_key(leaf):
        return jnp.stack([leaf] * ROW_COUNT)
    return np.stack([_single(leaf)] * ROW_COUNT)


def _check_formula(row: Row, sample: tuple, options: dict) -> None:
    if row.differentiable:
        # First, since the program with the gradients also returns the values.
        finite_grad(row.function, *sample, **options)
    result = mapped(row.function, *sample, **options)
    if row.oracle is not None:
        least = 1.0 if "size" in row.exempt else 0.0
        rows_match(result, row.oracle, sample, options, rtol=row.rtol, atol=row.atol, least=least)
    if "finite" not in row.exempt:
        for leaf in jax.tree.leaves(to_numpy(result)):
            assert np.all(np.isfinite(leaf)), f"{row} is not finite: {leaf}"


def _single(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    return array.astype(np.float32) if array.dtype == np.float64 else array
