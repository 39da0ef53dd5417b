"""The table of a package's public functions, and the checks that every row passes.

How to add a row (15 lines that suffice):

1. Make ``tests/<namespace>/table_<concept>.py``; it exports ``ROWS``, a list of :class:`Row`. The
   file is loaded by path, so it imports installed modules only, never a sibling.
2. ``function`` is the exported function, or a module-level one that runs an exported class
   (then ``name`` says which export it stands for).
3. ``sample`` draws a tuple of positional arguments, each with ``ROWS`` samples along axis 0:
   ``series(3)``, ``st.tuples(rows(7), flags(7))``. Use few shapes: each one compiles 5 programs.
4. ``options`` is a dictionary of keyword arguments or a strategy of such dictionaries; floats are
   traced, the rest is static.
5. ``oracle`` is NumPy in float64, given ONE sample: brute force or closed form, never the same
   algorithm. ``None`` needs an entry ``exempt={"oracle": "why"}``.
6. ``laws`` are functions ``law(*rows, **options)`` that assert; they call :func:`mapped`.
7. ``edges`` are single samples at ties, zeros, saturation and length zero: the oracle is compared
   and the gradient must be finite there too.
8. ``refuses`` lists calls that must raise ``ValueError`` before tracing, with a part of the text.
   The same values in a compiled program must give NaN, or ``traced`` says why not.
9. ``differentiable=False`` where no gradient is promised; ``exempt`` names any other check that
   does not apply, with reason (``EXEMPTIONS``).

The absolute tolerance is a share of the largest number of the leaf compared, or what rounding the
arguments can change (``_compare.rounding``). Where a formula passes through numbers of size one, as
the logarithm of a sum near one does, ``exempt["size"]`` says so, and a leaf counts as that large.

From the annotations of ``function`` follow laws that need no list: whole numbers are refused where
they are none, an array where one number is due (``scalars``), integers give what floats give
(``integers``), lists what arrays give (``lists``), and nothing is summed in a half-precision float
(``sums``).
"""

import dataclasses
import functools
import importlib.util
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import jax
import numpy as np
from hypothesis import strategies as st

from neorl_core.testing._compare import ATOL, RTOL

FEW = 4
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

    Where its numbers are known only while a compiled program runs, the result must hold NaN;
    ``traced`` says why it does not.
    """

    match: str
    args: tuple
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    error: type[Exception] = ValueError
    traced: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One line of the table; the module's docstring says how to fill it.

    Attributes:
        function: What is called.
        sample: Strategy of the tuple of its positional arguments, rows stacked.
        oracle: The same mathematics in NumPy on one sample, in float64.
        options: Keyword arguments, or a strategy of them.
        laws: Metamorphic laws, each ``law(*rows, **options)``.
        edges: Single samples where formulas break.
        refuses: Calls that must be refused.
        differentiable: Whether the gradient must be finite on every draw and edge.
        exempt: Check to reason, for the checks that do not apply.
        name: The export that this row stands for; the function's name by default.
        rtol: Relative tolerance in float32; a looser one than the default says why in a comment.
        atol: Absolute tolerance in float32, as a share of the largest number of a leaf; likewise.
        dtypes: Floating dtypes that must be kept.
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
        """A strategy of its keyword arguments."""
        if isinstance(self.options, st.SearchStrategy):
            return self.options
        return st.just(dict(self.options))

    @functools.cached_property
    def simplest(self) -> tuple[tuple, dict]:
        """Its simplest draw: sample, with rows stacked, and options."""
        return self._draws[0]

    @functools.cached_property
    def typical(self) -> tuple[tuple, dict]:
        """A random draw, of the largest shapes among a few."""

        def size(draw: tuple[tuple, dict]) -> int:
            return sum(np.size(leaf) for leaf in jax.tree.leaves(draw[0]))

        return max(reversed(self._draws), key=size)

    @functools.cached_property
    def _draws(self) -> list[tuple[tuple, dict]]:
        drawn = []

        @hypothesis.settings(max_examples=FEW)
        @hypothesis.given(self.sample, self.drawn_options())
        def keep(sample: tuple, options: dict) -> None:
            drawn.append((sample, options))

        keep()
        return drawn


@functools.cache
def load_table(folder: Path) -> tuple[Row, ...]:
    """The rows of every ``table_*.py`` in ``folder`` and below, in order of path; loaded once.

    Raises:
        ValueError: If there is no such file, or one exports no ``ROWS``.
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
        exported: The public names, as of :func:`exports`.
        table: All rows.
        elsewhere: Exports that are no formulas (containers, protocols), each with the test that
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
