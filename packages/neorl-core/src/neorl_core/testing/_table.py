"""The table of a package's public functions, and the checks that every row passes.

How to add a row (15 lines suffice):

1. Create ``tests/<namespace>/table_<concept>.py``, which exports ``ROWS``, a list of :class:`Row`.
   The file is loaded by path, so it can import installed modules only, not a sibling.
2. ``function`` is the exported function, or a module-level one that runs an exported class
   (``name`` then states which export it stands for).
3. ``sample`` generates a tuple of positional arguments, each with ``ROWS`` samples along axis 0:
   ``series(3)``, ``st.tuples(rows(7), flags(7))``. Use few shapes: at night each one compiles its
   own programs; by day the largest is drawn alone.
4. ``options`` is a dictionary of keyword arguments or a strategy of such dictionaries; floats are
   traced, the rest is static.
5. ``oracle`` is NumPy in float64, called with ONE sample: brute force or closed form, never the
   same algorithm. ``None`` needs an entry ``exempt={"oracle": "why"}``.
6. ``laws`` are functions ``law(*rows, **options)`` that assert; they call :func:`mapped`.
7. ``edges`` are single samples at ties, zeros, saturation and length zero. The oracle is compared
   and the gradient must be finite there too.
8. ``refuses`` lists calls that must raise ``ValueError`` before tracing, with a part of the text.
   The same values in a compiled program must give NaN, or ``traced`` states why not.
9. ``differentiable=False`` if no gradient is promised; ``exempt`` names any other check that does
   not apply, with the reason (``EXEMPTIONS``).

The absolute tolerance is a fraction of the largest number of the compared leaf, or the effect of
rounding the arguments (``_compare.rounding``). If a formula has intermediate results of size one,
like the logarithm of a sum near one, ``exempt["size"]`` states this, and a leaf is taken to be that
large.

Some laws follow from the annotations of ``function`` and need no list. Anything but an integer is
an error where an integer is expected, and so is an array in place of one number (``scalars``).
Integers give the same results as floats (``integers``), lists the same as arrays (``lists``), and
nothing is summed in a half-precision float (``sums``).
"""

import contextlib
import dataclasses
import functools
import importlib.util
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from neorl_core.testing._compare import ATOL, RTOL, is_float, is_key, to_numpy
from neorl_core.testing._laws import (
    batch_independent,
    counts_are_integers,
    dtype_preserved,
    hyperparameters_leave_dtypes,
    integers_are_floats,
    lists_are_arrays,
    no_recompile,
    one_number_is_no_array,
    one_numbers,
    pure,
    rows_match,
    sums_are_wide,
)
from neorl_core.testing._slopes import slopes_agree
from neorl_core.testing._transforms import ROWS as ROW_COUNT
from neorl_core.testing._transforms import (
    as_rows,
    everywhere,
    finite_grad,
    split_options,
    take,
    variants,
)

FEW = 8
EXEMPTIONS = (
    *("oracle", "dtype", "batch", "finite", "recompile", "everywhere"),
    *("integers", "lists", "sums", "scalars", "slope", "size"),
)


@dataclasses.dataclass(frozen=True)
class Edge:
    """One sample, without a row axis, at a tie, zero, saturation or length zero."""

    args: tuple
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A call that must raise ``error`` before tracing, with ``match`` in its text.

    If its numbers are known only when a compiled program runs, the result must hold NaN; ``traced``
    states why it does not.
    """

    match: str
    args: tuple
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    error: type[Exception] = ValueError
    traced: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One line of the table; the docstring of the module explains how to fill it.

    Attributes:
        function: Function to call.
        sample: Strategy for the tuple of its positional arguments, with rows stacked.
        oracle: The same mathematics in NumPy on one sample, in float64.
        options: Keyword arguments, or a strategy for them.
        laws: Metamorphic laws, each ``law(*rows, **options)``.
        edges: Single samples where formulas tend to break.
        refuses: Calls that must raise an error.
        differentiable: Whether the gradient must be finite on every draw and edge.
        exempt: Reason for each check that does not apply, by the name of the check.
        name: The export that this row stands for; the function's name by default.
        rtol: Relative tolerance in float32; a comment justifies one looser than the default.
        atol: Absolute tolerance in float32, as a fraction of the largest number of a leaf;
            likewise.
        dtypes: Floating dtypes that must be preserved.
    """

    function: Callable[..., Any]
    sample: st.SearchStrategy[tuple]
    oracle: Callable[..., Any] | None
    options: Mapping[str, Any] | st.SearchStrategy[dict] = dataclasses.field(default_factory=dict)
    laws: Sequence[Callable[..., None]] = ()
    edges: Sequence[Edge] = ()
    refuses: Sequence[Refusal] = ()
    differentiable: bool = True
    exempt: Mapping[str, str] = dataclasses.field(default_factory=dict)
    name: str = ""
    rtol: float = RTOL
    atol: float = ATOL
    dtypes: tuple[str, ...] = ("bfloat16", "float32", "float64")

    def __post_init__(self) -> None:
        unknown = sorted(set(self.exempt) - set(EXEMPTIONS))
        if unknown:
            raise ValueError(f"unknown exemptions {unknown}; there are {EXEMPTIONS}")
        if self.oracle is None and "oracle" not in self.exempt:
            raise ValueError(f"{self}: a row without an oracle says why in exempt['oracle']")
        if not self.laws:
            raise ValueError(f"{self}: a row needs a law; invariants and oracle together find bugs")

    def __str__(self) -> str:
        return self.name or self.function.__name__

    def drawn_options(self) -> st.SearchStrategy[dict]:
        """A strategy for its keyword arguments."""
        if isinstance(self.options, st.SearchStrategy):
            return self.options
        return st.just(dict(self.options))

    @property
    def simplest(self) -> tuple[tuple, dict]:
        """Its simplest draw: the sample, with rows stacked, and the options."""
        return self._drawn[0]

    @property
    def typical(self) -> tuple[tuple, dict]:
        """The last of its largest draws."""
        return max(reversed(self.draws), key=_size)

    @functools.cached_property
    def draws(self) -> list[tuple[tuple, dict]]:
        """A few draws, the same in every run, with one shape for equal static options: the largest.

        A draw of another shape would compile all programs of the row once more.
        """
        largest: dict[Any, int] = {}
        for sample, options in self._drawn:
            static = split_options(options)[1]
            largest[static] = max(largest.get(static, 0), _size((sample, options)))
        return [draw for draw in self._drawn if _size(draw) == largest[split_options(draw[1])[1]]]

    @functools.cached_property
    def _drawn(self) -> list[tuple[tuple, dict]]:
        drawn = []

        @hypothesis.settings(max_examples=FEW, derandomize=True, database=None)
        @hypothesis.given(self.sample, self.drawn_options())
        def keep(sample: tuple, options: dict) -> None:
            drawn.append((sample, options))

        keep()
        return drawn


def _size(draw: tuple[tuple, dict]) -> int:
    """How many numbers the sample of a draw has."""
    return sum(np.size(leaf) for leaf in jax.tree.leaves(draw[0]))


@functools.cache
def load_table(folder: Path) -> tuple[Row, ...]:
    """The rows of every ``table_*.py`` in ``folder`` and below, in order of path; loaded once.

    Raises:
        ValueError: If there is no such file, or one does not export ``ROWS``.
    """
    table = []
    for path in sorted(folder.rglob("table_*.py")):
        spec = importlib.util.spec_from_file_location(f"_table_{path.stem}", path)
        if spec is None or spec.loader is None:
            raise ValueError(f"{path} cannot be loaded")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if not getattr(module, "ROWS", None):
            raise ValueError(f"{path} exports no ROWS")
        table.extend(module.ROWS)
    if not table:
        raise ValueError(f"{folder} holds no table_*.py")
    return tuple(table)


def table_gaps(
    exported: Collection[str], table: Collection[Row], elsewhere: Mapping[str, str]
) -> list[str]:
    """Differences between the table and the public names; empty if it covers them exactly.

    Args:
        exported: The public names, as returned by :func:`exports`.
        table: All rows.
        elsewhere: Exports that are not formulas (containers, protocols), each with the test that
            covers it.

    Returns:
        One sentence per gap.
    """
    names = {str(row) for row in table}
    exported = set(exported)
    missing = exported - names - set(elsewhere)
    return [
        *(f"{name} has no row in a table_*.py and no entry elsewhere" for name in sorted(missing)),
        *(f"{name} has a row but is not exported" for name in sorted(names - exported)),
        *(
            f"{name} is listed elsewhere but not exported"
            for name in sorted({*elsewhere} - exported)
        ),
        *(f"{name} is in the table and elsewhere" for name in sorted(names & set(elsewhere))),
    ]


# The checks that every row of a table passes.


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
                (functools.partial(mapped, row.function), sample),
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
