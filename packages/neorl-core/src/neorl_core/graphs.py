"""Padded graphs and message passing."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from neorl_core._internal.checks import (
    checked_integer,
    checked_positive,
    floats,
    is_concrete,
    require_choice,
    require_each,
    require_integers,
    require_rank,
)
from neorl_core._internal.missing_names import missing_name
from neorl_core._internal.precision import narrow, widen

__all__ = [
    "PaddedGraph",
    "edge_softmax",
    "graph_convolution",
    "pad_graph",
    "pool_edges",
]
globals()["__getattr__"] = missing_name(__name__, __all__)

# Graphs padded to a few sizes, so that a changing topology does not recompile.


class PaddedGraph(NamedTuple):
    """A directed graph with padding; an undirected one lists every edge in both directions.

    Attributes:
        nodes: Features, shape ``(node, feature)``.
        senders: Index of the node that each edge leaves, int32, shape ``(edge,)``.
        receivers: Index of the node that each edge enters, int32, shape ``(edge,)``.
        node_mask: False for padding, shape ``(node,)``.
        edge_mask: False for padding, shape ``(edge,)``; a real edge joins real nodes.
    """

    nodes: Float[Array, "node feature"]
    senders: Int[Array, " edge"]
    receivers: Int[Array, " edge"]
    node_mask: Bool[Array, " node"]
    edge_mask: Bool[Array, " edge"]


def pad_graph(
    nodes: Float[ArrayLike, "real_node feature"],
    senders: Int[ArrayLike, " real_edge"],
    receivers: Int[ArrayLike, " real_edge"],
    *,
    node_count: int,
    edge_count: int,
) -> PaddedGraph:
    """Pads a graph to fixed sizes.

    Args:
        nodes: Features; may be empty.
        senders: Index of the node that each edge leaves; may be empty.
        receivers: Index of the node that each edge enters.
        node_count: Padded number of nodes.
        edge_count: Padded number of edges.

    Returns:
        The padded graph. If under ``jit`` an edge joins a node that does not exist, convolution,
        attention, pooling of edges and degrees of this graph are all NaN.

    Raises:
        ValueError: If shapes disagree, the graph is larger than its padded size, a size is not an
            integer, indices are not integers, or a concrete edge joins a node that does not exist.

    Example:
        >>> import jax.numpy as jnp
        >>> graph = pad_graph(jnp.ones((2, 1)), [0], [1], node_count=4, edge_count=2)
        >>> graph.node_mask.tolist(), graph.edge_mask.tolist()
        ([True, True, False, False], [True, False])
    """
    require_rank("nodes", nodes, 2, "node, feature")
    nodes = floats(nodes)
    _require_ends(senders, receivers, nodes.shape[0])
    senders, receivers = (jnp.asarray(side, jnp.int32) for side in (senders, receivers))
    require_rank("senders", senders, 1, "edge")
    if senders.shape != receivers.shape:
        raise ValueError(
            f"senders and receivers must agree, got shapes {senders.shape} and {receivers.shape}; "
            "give both ends of every edge"
        )
    node_count = checked_integer("node_count", node_count)
    edge_count = checked_integer("edge_count", edge_count)
    real_nodes, real_edges = nodes.shape[0], senders.shape[0]
    if real_nodes > node_count or real_edges > edge_count:
        raise ValueError(
            f"a graph of {real_nodes} nodes and {real_edges} edges does not fit into "
            f"{node_count} and {edge_count}; choose a larger padded size"
        )
    more_edges = edge_count - real_edges
    return PaddedGraph(
        jnp.pad(nodes, ((0, node_count - real_nodes), (0, 0))),
        jnp.pad(senders, (0, more_edges)),
        jnp.pad(receivers, (0, more_edges)),
        jnp.arange(node_count) < real_nodes,
        jnp.arange(edge_count) < real_edges,
    )


def _require_ends(senders: ArrayLike, receivers: ArrayLike, nodes: int) -> None:
    require_integers("senders", senders)
    require_integers("receivers", receivers)
    if not is_concrete((senders, receivers)):
        return
    ends = np.concatenate([np.ravel(senders), np.ravel(receivers)])
    if np.any((ends < 0) | (ends >= nodes)):
        raise ValueError(
            f"edges must join nodes 0 to {nodes - 1}, got indices {ends.min()} to {ends.max()}; "
            "number the nodes of one graph from 0"
        )


def require_graph(graph: PaddedGraph) -> None:
    """Raises an error if the fields of a hand-made graph do not fit together; ignores values."""
    for name, field in zip(graph._fields, graph, strict=True):
        if not hasattr(field, "dtype"):
            raise ValueError(
                f"{name} of a graph must be an array, got {type(field).__name__}; use pad_graph"
            )
    require_rank("nodes", graph.nodes, 2, "node, feature")
    require_each("node_mask", graph.node_mask, graph.nodes.shape[0], "nodes")
    require_rank("edge_mask", graph.edge_mask, 1, "edge")
    for name, side in (("senders", graph.senders), ("receivers", graph.receivers)):
        require_each(name, side, graph.edge_mask.shape[0], "edges in edge_mask")
        require_integers(name, side)
    for name, mask in (("node_mask", graph.node_mask), ("edge_mask", graph.edge_mask)):
        if mask.dtype != jnp.bool_:
            raise ValueError(f"{name} must be boolean, got {mask.dtype}; cast it with astype(bool)")


def real_nodes(graph: PaddedGraph) -> Float[Array, "node feature"]:
    """The features, with zeros at padding whatever it contains."""
    return jnp.where(graph.node_mask[:, None], floats(graph.nodes), 0)


def entered_node(graph: PaddedGraph) -> Int[Array, " edge"]:
    """The node that each edge enters; for padding an index past the last node, which is dropped."""
    return jnp.where(graph.edge_mask, graph.receivers, graph.node_mask.shape[0])


def require_edge_values(name: str, values: Array, graph: PaddedGraph) -> Array:
    """Values along the edges as floats; raises an error unless there is one row per edge."""
    values = floats(values)
    edges = graph.edge_mask.shape[0]
    if values.ndim < 1 or values.shape[0] != edges:
        raise ValueError(
            f"{name} needs one row for each of the {edges} edges, got shape {values.shape}; "
            "pad the values like the edges"
        )
    return values


def nan_if_broken(values: Array, graph: PaddedGraph) -> Array:
    """The values, all NaN if a real edge does not join real nodes."""
    count = graph.node_mask.shape[0]
    broken = jnp.zeros((), bool)
    for side in (graph.senders, graph.receivers):
        real = (side >= 0) & (side < count)
        if count:
            real = real & graph.node_mask[jnp.clip(side, 0, count - 1)]
        broken = broken | jnp.any(graph.edge_mask & ~real)
    return jnp.where(broken, jnp.nan, values)


def along_edges(flags: Bool[Array, " edge"], values: Array) -> Bool[Array, "edge *one"]:
    """Flags with as many axes as the values."""
    return flags.reshape(flags.shape + (1,) * (values.ndim - 1))


def sum_at_receivers(values: Array, graph: PaddedGraph) -> Array:
    """Sums of the values of the edges that enter each node, in the order of the edges."""
    total = jax.ops.segment_sum(widen(values), entered_node(graph), graph.node_mask.shape[0])
    return narrow(total, values.dtype)


# Convolution, attention weights and pooling on padded graphs, by segment operations.


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
