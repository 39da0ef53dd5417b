"""Padded graphs: buckets, bits, compilations and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import (
    PaddedGraph,
    edge_softmax,
    graph_convolution,
    pad_graph,
    pool_edges,
    pool_nodes,
    smallest_bucket,
)


def random_graph(rng, nodes, edges):
    senders, receivers = rng.integers(nodes, size=(2, edges))
    return rng.normal(size=(nodes, 3)).astype(np.float32), senders, receivers


def attend(graph, projection):
    """One layer of attention, of which every step could touch padding."""
    hidden = graph.nodes @ projection
    scores = jnp.sum(hidden[graph.senders] * hidden[graph.receivers], axis=-1)
    weights = edge_softmax(scores, graph)
    messages = weights[:, None] * hidden[graph.senders]
    after = graph._replace(
        nodes=pool_edges(messages, graph) + graph_convolution(graph) @ projection
    )
    return after.nodes, pool_nodes(after), pool_nodes(after, reduction="mean")


def test_every_bucket_gives_the_same_bits_and_compiles_once():
    rng = np.random.default_rng(0)
    projection = jnp.asarray(rng.normal(size=(3, 3)), jnp.float32)
    traces = []

    @jax.jit
    def layer(graph):
        traces.append(1)
        return attend(graph, projection)

    for _ in range(6):
        real = random_graph(rng, rng.integers(9, 16), rng.integers(1, 30))
        outputs = [
            layer(pad_graph(*real, node_count=nodes, edge_count=edges))
            for nodes, edges in ((16, 32), (64, 128))
        ]
        exact, wide = outputs
        count = len(real[0])
        np.testing.assert_array_equal(exact[0][:count], wide[0][:count])
        assert not np.any(np.asarray(wide[0][count:]))
        for pooled, pooled_wide in zip(exact[1:], wide[1:], strict=True):
            np.testing.assert_array_equal(pooled, pooled_wide)
    assert len(traces) == 2


def test_gradients_do_not_see_padding_either():
    rng = np.random.default_rng(1)
    real = random_graph(rng, 5, 7)

    @jax.jit
    def slope(projection, graph):
        return jax.grad(lambda p: jnp.sum(attend(graph, p)[0] ** 2))(projection)

    projection = jnp.asarray(rng.normal(size=(3, 3)), jnp.float32)
    small, large = (
        slope(projection, pad_graph(*real, node_count=n, edge_count=e))
        for n, e in ((5, 7), (32, 32))
    )
    assert np.all(np.isfinite(small))
    np.testing.assert_allclose(small, large, rtol=1e-5, atol=1e-5)


def test_a_graph_of_nothing_has_outputs_of_zero():
    nothing = pad_graph(jnp.zeros((0, 3)), [], [], node_count=4, edge_count=2)
    assert isinstance(nothing, PaddedGraph)
    for output in attend(nothing, jnp.ones((3, 3))):
        assert not np.any(np.asarray(output))


def test_an_isolated_node_keeps_what_it_has():
    graph = pad_graph(jnp.asarray([[2.0], [5.0], [7.0]]), [0], [1], node_count=4, edge_count=2)
    assert graph_convolution(graph)[2].tolist() == [7.0]
    assert graph_convolution(graph, self_loops=False)[2].tolist() == [0.0]
    assert pool_edges(jnp.ones(2), graph, reduction="max").tolist() == [0, 1, 0, 0]


def test_pooling_edges_by_maximum_sees_negative_numbers():
    graph = pad_graph(jnp.ones((2, 1)), [0, 1], [1, 1], node_count=3, edge_count=4)
    assert pool_edges(-jnp.arange(1.0, 5.0), graph, reduction="max").tolist() == [0, -1, 0]
    minus = graph._replace(nodes=-graph.nodes)
    assert pool_nodes(minus, reduction="max").tolist() == [-1]


def test_buckets():
    assert smallest_bucket(64, (128, 64, 256)) == 64
    assert smallest_bucket(0, (8,)) == 8
    for buckets in ((16, 32), ()):
        with pytest.raises(ValueError, match="no bucket holds 33"):
            smallest_bucket(33, buckets)
