"""Public functions of arrays under eager, jit, vmap and jit of vmap, and those left out, by reason.

The table is that of :mod:`neorl_core.testing`; its docstring says how to add a row.
"""

from pathlib import Path

import pytest

import neorl_safety
from neorl_core.testing import (
    check_edges,
    check_transformations,
    check_values,
    functions_of_arrays,
    load_table,
    table_gaps,
)

TABLE = load_table(Path(__file__).parent)
LEFT_OUT = {
    "take declared limits, and run under every transformation in the tests of filters": """
        certify constraint_excess filter_action nearest
        """,
    "count or fit on the host, from a log or for a report": """
        calibrate identified_model operation_scores violation_depth violation_statistics
        """,
    "take a network or the function of a user": "policy_ensemble requirement",
}
REASONS = {name: reason for reason, names in LEFT_OUT.items() for name in names.split()}

every_row = pytest.mark.parametrize("row", TABLE, ids=str)


@every_row
def test_values(row):
    """Row E08: they run compiled and mapped, and agree with their oracle."""
    check_values(row)


@pytest.mark.nightly
@every_row
def test_transformations(row):
    check_transformations(row)


@pytest.mark.nightly
@pytest.mark.parametrize("row", [row for row in TABLE if row.edges], ids=str)
def test_edges(row):
    check_edges(row)


def test_every_function_of_arrays_is_in_the_table_or_left_out_for_a_reason():
    assert not table_gaps(functions_of_arrays(neorl_safety), TABLE, REASONS)
