"""Graphs padded to a few sizes, so that a changing topology does not recompile."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from neorl_core._internal.checks import (
    checked_integer,
    floats,
    is_concrete,
    require_each,
    require_integers,
    require_rank,
)
from neorl_core._internal.float_widths import narrow, widen


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
