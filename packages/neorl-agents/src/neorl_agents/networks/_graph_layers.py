"""Graph convolution and graph attention with parameters, on padded graphs and on dense matrices."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core.graphs import PaddedGraph, edge_softmax, graph_convolution, pool_edges

SLOPE = 0.2
"""Slope of the leaky ReLU before attention's softmax, as published."""


class GraphConvolution(eqx.Module):
    """One layer of a graph convolution network: ``D^{-1/2} (A + I) D^{-1/2} X W + b``.

    Every node mixes its own features with those of the nodes that have an edge into it. A node
    without incoming edges has ``x W + b``. Padding gets zero and changes nothing elsewhere.

    Attributes:
        weight: ``W``, shape ``(in, out)``.
        bias: ``b``, shape ``(out,)``.

    Source: Kipf and Welling, Semi-supervised classification with graph convolutional networks,
    arXiv 1609.02907, equation 2.
    """

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"]

    def __call__(self, graph: PaddedGraph) -> Float[Array, "node out"]:
        """New features by sums over the edges, the form for large graphs with few edges."""
        # By linearity both orders agree; the narrower features are sent along the edges.
        if self.weight.shape[0] <= self.weight.shape[1]:
            mixed = graph_convolution(graph) @ self.weight
        else:
            mixed = graph_convolution(graph._replace(nodes=graph.nodes @ self.weight))
        return _mask_nodes(mixed + self.bias[None, :], graph.node_mask)

    def dense(
        self,
        nodes: Float[Array, "node in"],
        adjacency: Float[Array, "receiver sender"],
        mask: Bool[Array, " node"],
    ) -> Float[Array, "node out"]:
        """The same by matrices, the form for graphs of a few dozen nodes.

        Args:
            nodes: Features; zero at padding.
            adjacency: 1 where an edge goes from the sender to the receiver, else 0; no loops.
            mask: False for padding.
        """
        with_self_loops = adjacency + jnp.eye(len(nodes), dtype=nodes.dtype)
        scale = jax.lax.rsqrt(jnp.sum(with_self_loops, axis=1))
        mixed = with_self_loops @ (scale[:, None] * (nodes @ self.weight))
        return _mask_nodes(scale[:, None] * mixed + self.bias[None, :], mask)


class GraphAttention(eqx.Module):
    """One layer of a graph attention network, with several parallel heads.

    With ``h = x W`` of a head, node ``i`` gets ``sum_j a_ij h_j + b`` over itself and the nodes
    ``j`` with an edge into ``i``; ``a`` is the softmax over them of
    ``leaky_relu(source . h_j + target . h_i)``. A node without incoming edges attends only to
    itself. Padding gets zero and changes nothing elsewhere.

    Attributes:
        weight: ``W`` of all heads, shape ``(in, out)``; each head has ``out / head`` columns.
        source: The sender's part of the score, shape ``(head, out / head)``.
        target: The receiver's part of the score, shape ``(head, out / head)``.
        bias: ``b``, shape ``(out,)``.

    Source: Velickovic et al., Graph attention networks, arXiv 1710.10903, equations 3 to 5.
    """

    weight: Float[Array, "in out"]
    source: Float[Array, "head part"]
    target: Float[Array, "head part"]
    bias: Float[Array, " out"]

    def __call__(self, graph: PaddedGraph) -> Float[Array, "node out"]:
        """New features by sums over the edges, the form for large graphs with few edges."""
        number = jnp.arange(graph.node_mask.shape[0], dtype=graph.senders.dtype)
        graph = graph._replace(
            senders=jnp.concatenate([graph.senders, number]),
            receivers=jnp.concatenate([graph.receivers, number]),
            edge_mask=jnp.concatenate([graph.edge_mask, graph.node_mask]),
        )
        heads, at_source, at_target = self._scores(graph.nodes)
        scores = _leaky(at_source[graph.senders] + at_target[graph.receivers])
        messages = edge_softmax(scores, graph)[:, :, None] * heads[graph.senders]
        mixed = pool_edges(messages, graph).reshape(len(number), -1)
        return _mask_nodes(mixed + self.bias[None, :], graph.node_mask)

    def dense(
        self,
        nodes: Float[Array, "node in"],
        adjacency: Float[Array, "receiver sender"],
        mask: Bool[Array, " node"],
    ) -> Float[Array, "node out"]:
        """The same by matrices; see :meth:`GraphConvolution.dense`."""
        heads, at_source, at_target = self._scores(nodes)
        linked = (adjacency > 0) | jnp.eye(len(nodes), dtype=jnp.bool_)
        scores = _leaky(at_target.T[:, :, None] + at_source.T[:, None, :])
        weights = jax.nn.softmax(jnp.where(linked[None], scores, -jnp.inf), axis=-1)
        mixed = jnp.einsum("hij,jhp->ihp", weights, heads).reshape(len(nodes), -1)
        return _mask_nodes(mixed + self.bias[None, :], mask)

    def _scores(self, nodes: Array) -> tuple[Array, Array, Array]:
        heads = (nodes @ self.weight).reshape(len(nodes), *self.source.shape)
        return (
            heads,
            jnp.sum(heads * self.source[None], axis=-1),
            jnp.sum(heads * self.target[None], axis=-1),
        )


def init_graph_convolution(n_in: int, n_out: int, key: PRNGKeyArray) -> GraphConvolution:
    """A layer with weights from ``U(-1, 1) sqrt(6 / (in + out))`` and zero biases.

    Args:
        n_in: Number of input features of a node.
        n_out: Number of output features.
        key: Random key; consumed.

    Source: Glorot and Bengio (2010), as in the published code.
    """
    return GraphConvolution(_glorot(key, n_in, n_out), jnp.zeros(n_out, jnp.float32))


def init_graph_attention(
    n_in: int, n_out: int, key: PRNGKeyArray, *, heads: int = 4
) -> GraphAttention:
    """A layer with weights and scores from ``U(-1, 1) sqrt(6 / (in + out))`` and zero biases.

    Args:
        n_in: Number of input features of a node.
        n_out: Number of output features, over all heads.
        key: Random key; consumed.
        heads: Number of heads; must divide ``n_out``.

    Raises:
        ValueError: If the heads do not divide the features evenly.
    """
    if heads < 1 or n_out % heads:
        raise ValueError(
            f"the number of attention heads must divide the {n_out} features, got {heads} heads"
        )
    weight_key, source_key, target_key = jax.random.split(key, 3)
    part = n_out // heads
    source, target = (_glorot(k, heads, part, part, 1) for k in (source_key, target_key))
    return GraphAttention(
        _glorot(weight_key, n_in, n_out), source, target, jnp.zeros(n_out, jnp.float32)
    )


def _glorot(
    key: PRNGKeyArray, rows: int, columns: int, n_in: int = 0, n_out: int = 0
) -> Float[Array, "row column"]:
    bound = math.sqrt(6 / ((n_in or rows) + (n_out or columns)))
    return jax.random.uniform(key, (rows, columns), jnp.float32, -bound, bound)


def _leaky(scores: Array) -> Array:
    return jax.nn.leaky_relu(scores, SLOPE)


def _mask_nodes(nodes: Array, mask: Bool[Array, " node"]) -> Array:
    return jnp.where(mask[:, None], nodes, 0)
