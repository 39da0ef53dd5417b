"""Convolution, attention weights and pooling on padded graphs, by segment operations."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import checked_positive, floats, require_choice, require_rank
from neorl_core._internal.float_widths import narrow, widen
from neorl_core.graphs._padded_graph import (
    PaddedGraph,
    along_edges,
    entered_node,
    nan_if_broken,
    real_nodes,
    require_edge_values,
    require_graph,
    sum_at_receivers,
)

Reduction = Literal["sum", "mean", "max"]


def graph_convolution(
    graph: PaddedGraph,
    weights: Float[Array, " edge"] | None = None,
    *,
    self_loops: bool = True,
) -> Float[Array, "node feature"]:
    """Symmetrically normalised sum over neighbours, ``D^{-1/2} (A + I) D^{-1/2} X``.

    ``out_i = sum_{j -> i} w_ji x_j / sqrt(d_i d_j) + x_i / d_i``, where ``d`` is the total weight
    that enters a node, including its self-loop. A weight matrix may be applied before or after,
    since both are linear.

    Args:
        graph: Any padded graph; an undirected one lists every edge in both directions.
        weights: Edge weights, not negative; all one if ``None``. Under ``jit`` a negative weight
            gives NaN features at the node that its edge enters and at the nodes that follow it.
        self_loops: Whether to add ``I``.

    Returns:
        New features. A node without incoming edges gets its own features with ``self_loops`` and
        zero without. Padding gets zero, and its content has no effect.

    Raises:
        ValueError: If the fields of a graph made by hand do not fit together, ``weights`` does not
            have one number for each edge, or a concrete weight of a real edge is negative or not
            finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_core.graphs import pad_graph
        >>> pair = pad_graph(jnp.array([[1.0], [3.0]]), [0, 1], [1, 0], node_count=2, edge_count=2)
        >>> graph_convolution(pair).round(4).tolist()
        [[2.0], [2.0]]

    Source: Kipf and Welling, Semi-supervised classification with graph convolutional networks,
    arXiv 1609.02907, equation 2.
    """
    require_graph(graph)
    dtype, features = floats(graph.nodes).dtype, widen(real_nodes(graph))
    strength = jnp.ones(graph.edge_mask.shape, features.dtype) if weights is None else weights
    require_rank("weights", strength, 1, "edge")
    strength = require_edge_values("weights", strength, graph).astype(features.dtype)
    strength = jnp.where(graph.edge_mask, strength, 0)
    strength = checked_positive("weights", strength, or_zero=True, many=True)
    degree = sum_at_receivers(strength, graph) + (1 if self_loops else 0)
    # The double jnp.where keeps the gradient of isolated nodes finite.
    joined = ~(degree <= 0)
    scale = jnp.where(joined, jax.lax.rsqrt(jnp.where(joined, degree, 1)), 0)
    scaled = features * scale[:, None]
    total = sum_at_receivers(scaled[graph.senders] * strength[:, None], graph)
    result = (total + scaled if self_loops else total) * scale[:, None]
    result = jnp.where(graph.node_mask[:, None], result, 0)
    return narrow(nan_if_broken(result, graph), dtype)


def edge_softmax(
    scores: Float[Array, "edge *head"], graph: PaddedGraph
) -> Float[Array, "edge *head"]:
    """Attention weights: a softmax over the edges that enter each node.

    Args:
        scores: One row per edge, with any number of heads.
        graph: Any padded graph.

    Returns:
        Weights that sum to one at every node with incoming edges; zero for padding.

    Raises:
        ValueError: If the fields of a graph made by hand do not fit together, or ``scores`` does
            not have one row for each edge.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_core.graphs import pad_graph
        >>> graph = pad_graph(jnp.ones((2, 1)), [0, 1], [1, 1], node_count=2, edge_count=3)
        >>> edge_softmax(jnp.array([2.0, 2.0, 9.0]), graph).tolist()
        [0.5, 0.5, 0.0]

    Source: Velickovic et al., Graph attention networks, arXiv 1710.10903, equation 3.
    """
    require_graph(graph)
    scores = require_edge_values("scores", scores, graph)
    dtype, scores = scores.dtype, widen(scores)
    real = along_edges(graph.edge_mask, scores)
    highest = _max_at_receivers(scores, graph)
    # If all scores are minus infinity, as for masked edges, there is no maximum to subtract.
    highest = jnp.where(jnp.isneginf(highest), 0, highest)
    highest = jax.lax.stop_gradient(highest)[graph.receivers]
    exponentials = jnp.where(real, jnp.exp(jnp.where(real, scores - highest, 0)), 0)
    total = sum_at_receivers(exponentials, graph)[graph.receivers]
    return narrow(nan_if_broken(exponentials / jnp.where(real, total, 1), graph), dtype)


def pool_edges(
    values: Float[Array, "edge *feature"], graph: PaddedGraph, *, reduction: Reduction = "sum"
) -> Float[Array, "node *feature"]:
    """Pools the features of the edges that enter each node: sum, mean or maximum.

    Args:
        values: One row per edge.
        graph: Any padded graph.
        reduction: ``"sum"``, ``"mean"`` or ``"max"``.

    Returns:
        One row per node; zero where no edge enters.

    Raises:
        ValueError: If the fields of a graph made by hand do not fit together, ``values`` does not
            have one row for each edge, or ``reduction`` is unknown.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_core.graphs import pad_graph
        >>> graph = pad_graph(jnp.ones((2, 1)), [0, 1], [1, 1], node_count=2, edge_count=3)
        >>> pool_edges(jnp.array([1.0, 2.0, 9.0]), graph, reduction="mean").tolist()
        [0.0, 1.5]
    """
    require_choice("reduction", reduction, ("sum", "mean", "max"))
    require_graph(graph)
    values = require_edge_values("values", values, graph)
    values = jnp.where(along_edges(graph.edge_mask, values), values, 0)
    if reduction == "max":
        entering = _in_degrees(graph).reshape((-1,) + (1,) * (values.ndim - 1)) > 0
        highest = jnp.where(entering, _max_at_receivers(values, graph), 0)
        return nan_if_broken(highest, graph)
    dtype, total = values.dtype, sum_at_receivers(widen(values), graph)
    if reduction == "sum":
        return narrow(nan_if_broken(total, graph), dtype)
    count = jnp.maximum(_in_degrees(graph), 1).astype(total.dtype)
    mean = total / count.reshape(count.shape + (1,) * (total.ndim - 1))
    return narrow(nan_if_broken(mean, graph), dtype)


def _in_degrees(graph: PaddedGraph) -> Array:
    return sum_at_receivers(jnp.ones(graph.edge_mask.shape, widen(graph.nodes).dtype), graph)


def _max_at_receivers(values: Array, graph: PaddedGraph) -> Array:
    return jax.ops.segment_max(values, entered_node(graph), graph.node_mask.shape[0])
