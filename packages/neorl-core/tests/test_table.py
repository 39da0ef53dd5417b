"""Every exported function by its row in ``table/``; the how-to is in ``neorl_core.testing._table``.

``pytest test_table.py -k expectile_loss`` runs the rows of one function.
"""

from pathlib import Path

import pytest

import neorl_core
from neorl_core.testing import (
    check_edges,
    check_form,
    check_refusals,
    check_values,
    load_table,
    table_gaps,
)

HERE = Path(__file__).parent
TABLE = load_table(HERE / "table")

# Exports that are no formulas, each with the test file that covers it.
ELSEWHERE = {
    "Channel": "test_channels.py",
    "CostChannel": "test_channels.py",
    "Spec": "test_channels.py",
    "highs": "test_channels.py",
    "lows": "test_channels.py",
    "spec_from_dict": "test_channels.py",
    "spec_to_dict": "test_channels.py",
    "DelayLine": "test_replay.py",
    "HistoryWindow": "test_replay.py",
    "PrioritySample": "test_replay.py",
    "PriorityTree": "test_replay.py",
    "RingBuffer": "test_replay.py",
    "delay_line": "test_replay.py",
    "history_window": "test_replay.py",
    "priority_tree": "test_replay.py",
    "ring_buffer": "test_replay.py",
    "ring_order": "test_replay.py",
    "PIDCarry": "test_protocols.py",
    "MultiplierState": "test_protocols.py",
    "unit_interval": "test_channels.py",
    "LoggedTrajectories": "test_off_policy.py",
    "Magic": "table/off_policy.py",
    "KalmanFilter": "test_control.py",
    "LinearModel": "test_control.py",
    "Regulator": "test_control.py",
    "Aggregate": "test_aggregation.py",
    "PaddedGraph": "test_graphs.py",
    "averaging_rounds": "test_gossip.py",
    "hierarchical_mixing": "test_gossip.py",
    "metropolis_mixing": "test_gossip.py",
    "ring_mixing": "test_gossip.py",
    "smallest_bucket": "test_graphs.py",
    "star_mixing": "test_gossip.py",
    "Interval": "test_interval_coverage.py",
    "Moments": "test_statistics.py",
    "PairedTest": "test_statistics.py",
    "as_arrays": "test_arrays.py",
    "Environment": "test_protocols.py",
    "Policy": "test_protocols.py",
    "Step": "test_protocols.py",
    "Trajectory": "test_protocols.py",
    "Transition": "test_protocols.py",
    "DataStatistics": "test_protocols.py",
    "FieldStatistics": "test_protocols.py",
}

every_row = pytest.mark.parametrize("row", TABLE, ids=str)


@every_row
def test_values(row):
    check_values(row)


@pytest.mark.parametrize("row", [row for row in TABLE if row.edges], ids=str)
def test_edges(row):
    check_edges(row)


@every_row
def test_form(row):
    check_form(row)


@pytest.mark.parametrize("row", [row for row in TABLE if row.refuses], ids=str)
def test_refusals(row):
    check_refusals(row)


def test_the_table_covers_every_export():
    assert not table_gaps(neorl_core, TABLE, ELSEWHERE)


def test_what_is_covered_elsewhere_is_named_there():
    for name, file in ELSEWHERE.items():
        assert name in (HERE / file).read_text(), f"{file} does not mention {name}"
