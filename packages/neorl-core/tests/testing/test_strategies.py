"""The strategies draw what they promise, the corners and the decades included."""

import numpy as np
from hypothesis import given

from neorl_core.testing import (
    LENGTHS,
    ROWS,
    decades,
    endings,
    in_units,
    keys,
    padded_graphs,
    rows,
    seeds,
    series,
    simplex,
)


@given(series(2), rows(3), simplex(4), keys(), seeds())
def test_arrays_are_finite_float32_rows(pair, row, weights, key, seed):
    length = pair[0].shape[1]
    assert length in LENGTHS
    assert pair[0].shape == pair[1].shape == (ROWS, length)
    assert row.shape == (ROWS, 3)
    for array in (*pair, row, weights):
        assert array.dtype == np.float32
        assert np.isfinite(array).all()
        assert (np.abs(array) <= 100).all()
        tiny = np.finfo(np.float32).tiny
        assert ((array == 0) | (np.abs(array) >= tiny)).all()
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
    assert key.shape == (ROWS,)
    assert 0 <= seed < 2**31


@given(in_units(series(1)), rows(20, elements=decades()))
def test_what_the_field_meets_is_finite(sample, spread):
    for array in (*sample, spread):
        assert array.dtype == np.float32
        assert array.shape[0] == ROWS
        assert np.isfinite(array).all()
    assert ((spread == 0) | ((np.abs(spread) >= 9e-10) & (np.abs(spread) <= 1.1e9))).all()


def test_the_decades_are_met_evenly():
    seen = {"spread": [], "units": []}

    @given(rows(10, elements=decades()), in_units(rows(10)))
    def collect(spread, units):
        for name, array in (("spread", spread), ("units", units)):
            seen[name].append(array)

    collect()
    for arrays in seen.values():
        sizes = np.log10(np.abs(np.concatenate(arrays)[np.concatenate(arrays) != 0]))
        assert np.ptp(np.quantile(sizes, [0.1, 0.9])) > 5


def test_most_entries_of_a_drawn_array_differ():
    counts = []

    @given(rows(20))
    def collect(array):
        counts.append(len(np.unique(array)))

    collect()
    assert np.median(counts) > 30


def test_every_pattern_of_ends_occurs():
    seen = set()

    @given(endings(3))
    def collect(pattern):
        terminated, truncated = pattern
        ends = terminated.astype(int) + 2 * truncated
        seen.add(tuple(ends.tolist()))
        assert ends[-1] > 0

    collect()
    assert len(seen) > 12
    assert {row[-1] for row in seen} == {1, 2, 3}
    assert {row[0] for row in seen} == {0, 1, 2, 3}


def test_endings_of_one_row_are_ends():
    @given(endings(1))
    def check(pattern):
        terminated, truncated = pattern
        assert (terminated | truncated).all()

    check()


@given(padded_graphs())
def test_real_edges_join_real_nodes(graph):
    for row in range(ROWS):
        real = graph.edge_mask[row]
        assert graph.node_mask[row][graph.senders[row][real]].all()
        assert graph.node_mask[row][graph.receivers[row][real]].all()


def test_graphs_include_empty_ones_and_isolated_nodes():
    collected = set()

    @given(padded_graphs())
    def collect(graph):
        for nodes, edges, senders, receivers in zip(
            graph.node_mask, graph.edge_mask, graph.senders, graph.receivers, strict=True
        ):
            touched = {*senders[edges].tolist(), *receivers[edges].tolist()}
            collected.add("empty" if not nodes.any() else "nodes")
            collected.add("isolated" if nodes.sum() > len(touched) else "joined")
            collected.add("edges" if edges.any() else "no edges")

    collect()
    assert {"empty", "isolated", "joined", "edges", "no edges"} <= collected
