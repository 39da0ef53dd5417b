"""Padded graphs: padded sizes, bits, compilations and gradients."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.graphs import (
    PaddedGraph,
    edge_softmax,
    graph_convolution,
    pad_graph,
    pool_edges,
)

# An eager call would compile every operation by itself.
pool_edges = jax.jit(pool_edges, static_argnames="reduction")
graph_convolution = jax.jit(graph_convolution, static_argnames="self_loops")


def random_graph(rng, nodes, edges):
    senders, receivers = rng.integers(nodes, size=(2, edges))
    return rng.normal(size=(nodes, 3)).astype(np.float32), senders, receivers


def attend(graph, projection):
    """One layer of attention, of which every step could touch padding."""
    hidden = graph.nodes @ projection
    scores = jnp.sum(hidden[graph.senders] * hidden[graph.receivers], axis=-1)
    weights = edge_softmax(scores, graph)
    messages = weights[:, None] * hidden[graph.senders]
    return pool_edges(messages, graph) + graph_convolution(graph) @ projection


def test_every_padded_size_gives_the_same_bits_and_compiles_once():
    """Row P01: a padded graph with another topology uses the same compiled program."""
    rng = np.random.default_rng(0)
    projection = jnp.asarray(rng.normal(size=(3, 3)), jnp.float32)

    @jax.jit
    @chex.assert_max_traces(n=2)
    def layer(graph):
        return attend(graph, projection)

    for size in ((9, 1), (12, 29), (15, 17)):
        real = random_graph(rng, *size)
        outputs = [
            layer(pad_graph(*real, node_count=nodes, edge_count=edges))
            for nodes, edges in ((16, 32), (64, 128))
        ]
        exact, wide = outputs
        count = len(real[0])
        np.testing.assert_array_equal(exact[:count], wide[:count])
        assert not np.any(np.asarray(wide[count:]))


def test_gradients_do_not_see_padding_either():
    rng = np.random.default_rng(1)
    real = random_graph(rng, 5, 7)

    @jax.jit
    def slope(projection, graph):
        return jax.grad(lambda p: jnp.sum(attend(graph, p) ** 2))(projection)

    projection = jnp.asarray(rng.normal(size=(3, 3)), jnp.float32)
    small, large = (
        slope(projection, pad_graph(*real, node_count=n, edge_count=e))
        for n, e in ((5, 7), (32, 32))
    )
    assert np.all(np.isfinite(small))
    np.testing.assert_allclose(small, large, rtol=1e-5, atol=1e-5)


@pytest.mark.nightly
def test_a_graph_of_nothing_has_outputs_of_zero():
    nothing = pad_graph(jnp.zeros((0, 3)), [], [], node_count=4, edge_count=2)
    assert isinstance(nothing, PaddedGraph)
    assert not np.any(np.asarray(attend(nothing, jnp.ones((3, 3)))))


def test_an_isolated_node_keeps_what_it_has():
    graph = pad_graph(jnp.asarray([[2.0], [5.0], [7.0]]), [0], [1], node_count=4, edge_count=2)
    assert graph_convolution(graph)[2].tolist() == [7.0]
    assert graph_convolution(graph, self_loops=False)[2].tolist() == [0.0]
    assert pool_edges(jnp.ones(2), graph, reduction="max").tolist() == [0, 1, 0, 0]


def test_pooling_edges_by_maximum_sees_negative_numbers():
    graph = pad_graph(jnp.ones((2, 1)), [0, 1], [1, 1], node_count=3, edge_count=4)
    assert pool_edges(-jnp.arange(1.0, 5.0), graph, reduction="max").tolist() == [0, -1, 0]


def pair(senders, receivers):
    return pad_graph(jnp.ones((2, 1)), senders, receivers, node_count=4, edge_count=2)


@pytest.mark.parametrize(
    ("senders", "receivers"), [([7], [1]), ([0], [7]), ([0], [2]), ([3], [1]), ([-1], [1])]
)
def test_an_edge_to_nowhere_gives_nan_under_jit(senders, receivers):
    """It brought a clamped node's features, or was dropped without a word."""
    with pytest.raises(ValueError, match="nodes 0 to 1"):
        pair(senders, receivers)

    @jax.jit
    def everything(senders, receivers):
        graph = pair(senders, receivers)
        pooled = [pool_edges(jnp.ones(2), graph, reduction=r) for r in ("sum", "mean", "max")]
        softmax = edge_softmax(jnp.ones(2), graph)
        return graph_convolution(graph), softmax, *pooled

    for result in everything(np.asarray(senders), np.asarray(receivers)):
        assert np.isnan(result).all()
    for result in everything(np.asarray([0]), np.asarray([1])):
        assert np.isfinite(result).all()


def test_indices_that_would_be_cut_are_refused():
    for senders, receivers, name in (([0.5], [1], "senders"), ([0], jnp.ones(1), "receivers")):
        with pytest.raises(ValueError, match=f"{name} must be integers, got float32"):
            pair(senders, receivers)
    with jax.enable_x64(False), pytest.raises(ValueError, match="nodes 0 to 1"):
        pair(np.asarray([2**32]), np.asarray([0]))


def test_the_maximum_of_minus_infinity_is_minus_infinity():
    graph = pair([0, 0], [1, 1])
    pooled = pool_edges(jnp.full(2, -jnp.inf), graph, reduction="max")
    assert pooled.tolist() == [0, -np.inf, 0, 0]
