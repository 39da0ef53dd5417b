'''The test kit of the neorl packages and of others: the extra ``neorl-core[testing]``.

A property is generated once and checked under every transformation::

    # conftest.py
    from neorl_core.testing import configure_tests

    def pytest_configure() -> None:
        configure_tests()

    # test_square.py
    import numpy as np
    from hypothesis import given
    from neorl_core.testing import finite_grad, oracle, series

    def mean_square(errors):
        """The function under test: one sample, no batch axis."""
        return (errors**2).mean()

    def mean_square_in_numpy(errors):
        return np.sum(np.square(errors)) / errors.size

    @given(series(1))
    def test_mean_square(sample):
        result = oracle(mean_square, mean_square_in_numpy, *sample)   # shape (ROWS,)
        assert (result >= 0).all()
        finite_grad(mean_square, *sample)

Every argument holds ``ROWS`` samples along its first axis. :func:`everywhere` (and :func:`oracle`,
which also compares with the reference) evaluates a function eagerly, under ``jit``, ``vmap`` and
``jit`` of ``vmap``, and requires agreement. Transformed callables are cached by the identity of the
function, so pass functions defined at module level. Keyword arguments are shared by all rows:
floats and arrays are traced, the rest is static. Rows may be PyTrees.

* **settings of tests** - :func:`configure_tests`: rank promotion raises an error; Hypothesis
  profiles (15 repeatable examples by default, ``nightly``).
* **laws** - :func:`everywhere`, :func:`oracle`, :func:`finite_grad`, :func:`no_recompile`,
  :func:`state_keeps_form`, :func:`pure`, :func:`dtype_preserved`, :func:`batch_independent`,
  :func:`mapped` (the compiled ``vmap`` alone, for metamorphic laws), :func:`assert_close`.
* **strategies** - :func:`reals`, :func:`arrays`, :func:`rows`, :func:`series`, :func:`flags`,
  :func:`integers`, :func:`simplex`, :func:`seeds`, :func:`keys`, :func:`lengths` with the bucket
  ``LENGTHS``; for field data: :func:`decades` and :func:`in_units`; :func:`endings`,
  :func:`padded_graphs`.
* **table** - :class:`Row`, :class:`Edge`, :class:`Refusal`, :func:`load_table`,
  :func:`check_values`, :func:`check_edges`, :func:`check_form`, :func:`check_refusals`,
  :func:`check_bad_values`, :func:`check_transformations` (slow: for nightly runs),
  :func:`table_gaps`: a table of all public functions whose rows are its tests (the docstring of
  :class:`Row`'s module explains how). :func:`public_api` records signatures, :func:`namespaces` and
  :func:`exports` list the public namespaces of a package and the names in them,
  :func:`functions_of_arrays` those names that may be traced.
* **settings of objects** - :func:`check_ranges`: what a field may be is declared, and checked.

Traps that the kit avoids, found by measurement: arrays that Hypothesis fills with one value,
subnormals, arbitrary lengths (each one compiles), eager gradients (30 times slower), scan bodies
recreated in each call.
'''

from neorl_core.testing._compare import assert_close as assert_close
from neorl_core.testing._compare import assert_stable as assert_stable
from neorl_core.testing._laws import batch_independent as batch_independent
from neorl_core.testing._laws import dtype_preserved as dtype_preserved
from neorl_core.testing._laws import no_recompile as no_recompile
from neorl_core.testing._laws import oracle as oracle
from neorl_core.testing._laws import pure as pure
from neorl_core.testing._laws import state_keeps_form as state_keeps_form
from neorl_core.testing._public_api import exports as exports
from neorl_core.testing._public_api import functions_of_arrays as functions_of_arrays
from neorl_core.testing._public_api import namespaces as namespaces
from neorl_core.testing._public_api import public_api as public_api
from neorl_core.testing._ranges import check_ranges as check_ranges
from neorl_core.testing._settings import configure_tests as configure_tests
from neorl_core.testing._strategies import LENGTHS as LENGTHS
from neorl_core.testing._strategies import GraphDraw as GraphDraw
from neorl_core.testing._strategies import arrays as arrays
from neorl_core.testing._strategies import decades as decades
from neorl_core.testing._strategies import endings as endings
from neorl_core.testing._strategies import flags as flags
from neorl_core.testing._strategies import in_units as in_units
from neorl_core.testing._strategies import integers as integers
from neorl_core.testing._strategies import keys as keys
from neorl_core.testing._strategies import lengths as lengths
from neorl_core.testing._strategies import padded_graphs as padded_graphs
from neorl_core.testing._strategies import reals as reals
from neorl_core.testing._strategies import rows as rows
from neorl_core.testing._strategies import seeds as seeds
from neorl_core.testing._strategies import series as series
from neorl_core.testing._strategies import simplex as simplex
from neorl_core.testing._table import Edge as Edge
from neorl_core.testing._table import Refusal as Refusal
from neorl_core.testing._table import Row as Row
from neorl_core.testing._table import check_bad_values as check_bad_values
from neorl_core.testing._table import check_edges as check_edges
from neorl_core.testing._table import check_form as check_form
from neorl_core.testing._table import check_refusals as check_refusals
from neorl_core.testing._table import check_transformations as check_transformations
from neorl_core.testing._table import check_values as check_values
from neorl_core.testing._table import load_table as load_table
from neorl_core.testing._table import mapped as mapped
from neorl_core.testing._table import table_gaps as table_gaps
from neorl_core.testing._transforms import ROWS as ROWS
from neorl_core.testing._transforms import everywhere as everywhere
from neorl_core.testing._transforms import finite_grad as finite_grad

__all__ = [
    "LENGTHS",
    "ROWS",
    "Edge",
    "GraphDraw",
    "Refusal",
    "Row",
    "arrays",
    "assert_close",
    "assert_stable",
    "batch_independent",
    "check_bad_values",
    "check_edges",
    "check_form",
    "check_ranges",
    "check_refusals",
    "check_transformations",
    "check_values",
    "configure_tests",
    "decades",
    "dtype_preserved",
    "endings",
    "everywhere",
    "exports",
    "finite_grad",
    "flags",
    "functions_of_arrays",
    "in_units",
    "integers",
    "keys",
    "lengths",
    "load_table",
    "mapped",
    "namespaces",
    "no_recompile",
    "oracle",
    "padded_graphs",
    "public_api",
    "pure",
    "reals",
    "rows",
    "seeds",
    "series",
    "simplex",
    "state_keeps_form",
    "table_gaps",
]
