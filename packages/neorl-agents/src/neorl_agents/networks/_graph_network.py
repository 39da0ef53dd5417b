"""Networks that read a row of channels as the graph described by its layout."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_agents.networks._activations import (
    ACTIVATIONS,
    Activation,
    activation_name,
    identity,
)
from neorl_agents.networks._graph_layers import (
    GraphAttention,
    GraphConvolution,
    init_graph_attention,
    init_graph_convolution,
)
from neorl_agents.networks._graph_layout import NONE, GraphLayout
from neorl_agents.networks._mlp import MLP, init_mlp
from neorl_core import InputError
from neorl_core.graphs import PaddedGraph, pool_edges

ABSENT = -30.0
"""Output for an action at an absent node or edge: the low end under any squashing."""

MOST_DENSE = 64
"""Largest number of nodes for which matrices are faster than sums over edges."""

LAYERS = {"gcn": init_graph_convolution, "gat": init_graph_attention}


class GraphNetwork(eqx.Module):
    """Message passing, then one head each for nodes, edges and the whole graph.

    A layer is ``relu(layer(h) + h S)``; the features of edges are pooled into those of their
    receivers from the start. Heads are perceptrons with one hidden layer: of ``[h_i, pool]`` at a
    node, of ``[h_sender, h_receiver, features, pool]`` at an edge, of ``pool`` for the whole graph,
    with ``pool`` the mean over the present nodes. All nodes share their weights: renumbering the
    nodes, with the channels, permutes the actions and changes no value.

    Absent nodes and edges are blanked, whatever their channels hold, and their actions are
    ``ABSENT``. A graph without nodes has a pool of zeros. Topologies within the layout are values,
    so changing them compiles nothing.

    Attributes:
        layers: Message-passing layers.
        skips: ``S`` of every layer.
        node_head: Head for actions at nodes; ``None`` if there are none.
        edge_head: Head for actions at edges; ``None`` if there are none.
        pool_head: Head for outputs of the whole graph; ``None`` if there are none.
        layout: Layout of the channels; static.
        kind: ``"gcn"`` or ``"gat"``; static.
        widths: Lengths of input, layers and output that it was made with; static.
        n_outputs: Number of outputs in use; static.
        output: Function applied to the outputs; static.
        dense: Whether matrices are used in place of sums over edges; static.
    """

    layers: tuple[GraphConvolution | GraphAttention, ...]
    skips: tuple[Float[Array, "in out"], ...]
    node_head: MLP | None
    edge_head: MLP | None
    pool_head: MLP | None
    layout: GraphLayout = eqx.field(static=True)
    kind: str = eqx.field(static=True)
    widths: tuple[int, ...] = eqx.field(static=True)
    n_outputs: int = eqx.field(static=True)
    output: Activation = eqx.field(static=True, default=identity)
    dense: bool = eqx.field(static=True, default=True)

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        """The outputs for rows along the last axis; leading axes are a batch."""
        rows = jax.vmap(self._row_outputs)(x.reshape(-1, x.shape[-1]))
        return self.output(rows[:, : self.n_outputs].reshape(*x.shape[:-1], self.n_outputs))

    def first_outputs(self, count: int, *, output: Activation | None = None) -> "GraphNetwork":
        """The network with only its first outputs; no weight is removed."""
        output_activation = self.output if output is None else output
        return replace(self, n_outputs=count, output=output_activation)

    def _row_outputs(self, row: Float[Array, " in"]) -> Float[Array, " out"]:
        layout = _layout_of(self.layout, self.widths[0])
        padded_row = jnp.concatenate([row, jnp.zeros(1, row.dtype)])
        nodes_present, edges_present = _present(layout, padded_row)
        edges = _features(layout.edge_columns, padded_row, edges_present)
        h = _node_features(layout, padded_row, edges, nodes_present, edges_present)
        adjacency = _adjacency(layout, edges_present, row.dtype) if self.dense else None
        for layer, skip in zip(self.layers, self.skips, strict=True):
            if adjacency is None:
                new = layer(_graph(layout, h, nodes_present, edges_present))
            else:
                new = layer.dense(h, adjacency, nodes_present)
            h = jnp.where(nodes_present[:, None], jax.nn.relu(new + h @ skip), 0)
        pool = jnp.sum(h, axis=0) / jnp.maximum(jnp.sum(nodes_present), 1).astype(h.dtype)
        if self.widths[-1] % max(layout.n_action, 1) or not layout.n_action:
            return self._require(self.pool_head)(pool)
        return self._actions(layout, h, edges, pool, nodes_present, edges_present)

    def _actions(
        self, layout: GraphLayout, h: Array, edges: Array, pool: Array, nodes: Array, links: Array
    ) -> Float[Array, " out"]:
        """The outputs of every action, from the head of its place."""
        each, parts = self.widths[-1] // layout.n_action, []
        if layout.node_actions:
            node_inputs = jnp.concatenate([h, jnp.broadcast_to(pool[None, :], h.shape)], axis=1)
            values = self._require(self.node_head)(node_inputs)
            parts.append(jnp.where(nodes[:, None], values, ABSENT).reshape(-1))
        if layout.edge_actions:
            values = self._at_edges(layout, h, edges, pool)
            parts.append(jnp.where(links[:, None], values, ABSENT).reshape(-1))
        if layout.other_actions:
            parts.append(self._require(self.pool_head)(pool))
        flat, order = jnp.concatenate(parts), _order(layout, each)
        # A gather has a slow backward pass, and most plants need none.
        in_order = len(order) == flat.shape[0] and np.array_equal(order, np.arange(len(order)))
        return flat if in_order else flat[order]

    def _at_edges(
        self, layout: GraphLayout, h: Array, edges: Array, pool: Array
    ) -> Float[Array, "edge out"]:
        """The edge head; its first layer is applied to nodes before their outputs are combined."""
        head, width = self._require(self.edge_head), h.shape[1]
        weight, senders, receivers = head.weights[0], layout.senders, layout.receivers
        leaving, entering = h @ weight[:width], h @ weight[width : 2 * width]
        rest = edges @ weight[2 * width : -width] + (pool @ weight[-width:] + head.biases[0])[None]
        if self.dense:
            ends = [jnp.asarray(_one_hot(side, len(h)), h.dtype) for side in (senders, receivers)]
            hidden = ends[0] @ leaving + ends[1] @ entering + rest
        else:
            hidden = leaving[np.asarray(senders)] + entering[np.asarray(receivers)] + rest
        return head.activation(hidden) @ head.weights[1] + head.biases[1][None, :]

    def _require(self, head: MLP | None) -> MLP:
        assert head is not None  # init_graph_network makes it whenever the layout needs it.
        return head


def init_graph_network(
    widths: Sequence[int],
    key: PRNGKeyArray,
    *,
    kind: str = "gcn",
    layout: GraphLayout | None = None,
    output: Activation = identity,
    dense: bool | None = None,
    last_bound: float | None = None,
    **_: Any,
) -> GraphNetwork:
    """A graph network with fresh weights.

    If the number of outputs is a multiple of the number of actions, each action gets an equal share
    of them at its own node or edge; otherwise the outputs belong to the whole graph. Inputs beyond
    the observation are the actions, as in critics.

    Args:
        widths: Lengths of the input, of every layer and of the output.
        key: Random key; consumed.
        kind: ``"gcn"`` or ``"gat"``.
        layout: Layout of the observation (:func:`graph_layout`).
        output: Function applied to the outputs.
        dense: Whether matrices are used in place of sums over edges; up to 64 nodes by default,
            and never if two edges join the same nodes in the same direction.
        last_bound: Weights and biases of the last layer of every head are sampled from
            ``U(-1, 1)`` times this.
        **_: Other options of perceptrons, which graph networks do not have.

    Returns:
        The network, float32.

    Raises:
        InputError: If there is no layout, or the input is neither an observation nor an
            observation and an action.
    """
    widths = tuple(int(width) for width in widths)
    if layout is None:
        raise InputError(
            f"a network of kind {kind} reads a graph, but no layout of channels on nodes and edges "
            "is given; train it on a plant whose channels name them, such as tank3.level, and set "
            'networks.encoder = "none"'
        )
    in_order = _layout_of(layout, widths[0])
    hidden, n_out, n_action = widths[1:-1], widths[-1], in_order.n_action
    if not hidden:
        raise InputError(
            f"a network of kind {kind} needs at least one hidden layer; add a width to "
            "networks.hidden"
        )
    keys = jax.random.split(key, 2 * len(hidden) + 3)
    edge_width = _n_features(in_order.edge_columns)
    first = _n_features(in_order.node_columns) + edge_width + len(in_order.shared)
    layers, skips = [], []
    for i, (n_in, n_new) in enumerate(zip((first, *hidden), hidden, strict=False)):
        layers.append(LAYERS[kind](n_in, n_new, keys[2 * i]))
        skips.append(init_graph_convolution(n_in, n_new, keys[2 * i + 1]).weight)
    last = hidden[-1]
    head = partial(_head, last, last_bound)
    per_action = bool(n_action) and n_out % n_action == 0
    each = n_out // n_action if per_action else 0
    n_node, n_edge = (
        each * (1 + max((kind for _, _, kind in actions), default=NONE))
        for actions in (in_order.node_actions, in_order.edge_actions)
    )
    n_pool = each * len(in_order.other_actions) if per_action else n_out
    no_parallel_edges = (
        len(set(zip(in_order.senders, in_order.receivers, strict=True))) == in_order.n_edges
    )
    return GraphNetwork(
        layers=tuple(layers),
        skips=tuple(skips),
        node_head=head(2 * last, n_node, keys[-3]),
        edge_head=head(3 * last + edge_width, n_edge, keys[-2]),
        pool_head=head(last, n_pool, keys[-1]),
        layout=layout,
        kind=kind,
        widths=widths,
        n_outputs=n_out,
        output=output,
        dense=(in_order.n_nodes <= MOST_DENSE if dense is None else dense) and no_parallel_edges,
    )


def _head(last: int, bound: float | None, n_in: int, n_out: int, key: PRNGKeyArray) -> MLP | None:
    return init_mlp((n_in, last, n_out), key, last_bound=bound) if n_out else None


def _layout_of(layout: GraphLayout, n_in: int) -> GraphLayout:
    """The layout of an observation, or of an observation and an action."""
    if n_in == layout.n_obs:
        return layout
    if n_in == layout.n_obs + layout.n_action:
        return layout.with_actions()
    raise InputError(
        f"a graph of {layout.n_obs} channels and {layout.n_action} actions needs rows of "
        f"{layout.n_obs} numbers, or {layout.n_obs + layout.n_action} with the actions, got {n_in}"
    )


def _order(layout: GraphLayout, each: int) -> np.ndarray:
    """Positions of the outputs of every action in the outputs of nodes, edges and whole graph."""
    order, begin = np.zeros((each, layout.n_action), int), 0
    for actions, count in (
        (layout.node_actions, layout.n_nodes), (layout.edge_actions, layout.n_edges)
    ):  # fmt: skip
        kinds = 1 + max((kind for _, _, kind in actions), default=NONE)
        for number, element, kind in actions:
            order[:, number] = begin + (element * each + np.arange(each)) * kinds + kind
        begin += count * each * kinds
    for i, number in enumerate(layout.other_actions):
        order[:, number] = begin + np.arange(each) * len(layout.other_actions) + i
    return order.reshape(-1)


def _n_features(columns: tuple[tuple[int, ...], ...]) -> int:
    return len(columns[0]) if columns else 0


def _present(
    layout: GraphLayout, padded_row: Array
) -> tuple[Bool[Array, " node"], Bool[Array, " edge"]]:
    """Which nodes and edges are present; an edge needs both its ends."""
    nodes, edges = (
        jnp.ones(len(masks), jnp.bool_)  # A constant, so that its consequences fold to constants.
        if set(masks) <= {NONE}
        else jnp.asarray(np.asarray(masks) == NONE) | (padded_row[np.asarray(masks, np.int32)] > 0)
        for masks in (layout.node_masks, layout.edge_masks)
    )
    senders, receivers = np.asarray(layout.senders, int), np.asarray(layout.receivers, int)
    return nodes, edges & nodes[senders] & nodes[receivers]


def _features(columns: tuple[tuple[int, ...], ...], padded_row: Array, present: Array) -> Array:
    """Features of nodes or edges; zero for absent ones, whatever their channels hold."""
    table = np.asarray(columns, np.int32).reshape(len(columns), -1)
    return jnp.where(present[:, None], padded_row[table], 0)


def _node_features(
    layout: GraphLayout, padded_row: Array, edges: Array, nodes_present: Array, edges_present: Array
) -> Float[Array, "node feature"]:
    own = _features(layout.node_columns, padded_row, nodes_present)
    parts = [own]
    if edges.shape[1]:
        parts.append(pool_edges(edges, _graph(layout, own, nodes_present, edges_present)))
    if layout.shared:
        shared = padded_row[np.asarray(layout.shared)]
        parts.append(jnp.where(nodes_present[:, None], shared[None, :], 0))
    return jnp.concatenate(parts, axis=1)


def _graph(
    layout: GraphLayout, h: Array, nodes_present: Array, edges_present: Array
) -> PaddedGraph:
    senders, receivers = (
        jnp.asarray(side, jnp.int32) for side in (layout.senders, layout.receivers)
    )
    return PaddedGraph(h, senders, receivers, nodes_present, edges_present)


def _adjacency(layout: GraphLayout, present: Array, dtype: Any) -> Float[Array, "receiver sender"]:
    """1 where a present edge goes from the sender to the receiver."""
    edge_index = np.full((layout.n_nodes, layout.n_nodes), layout.n_edges)
    edge_index[np.asarray(layout.receivers, int), np.asarray(layout.senders, int)] = np.arange(
        layout.n_edges
    )
    return jnp.concatenate([present, jnp.zeros(1, jnp.bool_)])[edge_index].astype(dtype)


def _one_hot(indices: tuple[int, ...], count: int) -> np.ndarray:
    return np.eye(count, dtype=np.float32)[np.asarray(indices, int)]


def graph_static(network: GraphNetwork) -> dict[str, Any]:
    """Static parts of a graph network as plain JSON, including its layout."""
    return {
        "widths": list(network.widths),
        "outputs": network.n_outputs,
        "output": activation_name(network.output),
        "dense": network.dense,
        "layout": network.layout._asdict(),
    }


def graph_template(kind: str, static: dict[str, Any]) -> GraphNetwork:
    """The network of :func:`graph_static`, with zeros for its arrays."""
    layout = GraphLayout(**{name: _tuples(value) for name, value in static["layout"].items()})
    make = partial(init_graph_network, kind=kind, layout=layout, dense=static["dense"])
    shapes = eqx.filter_eval_shape(make, static["widths"], jax.random.key(0))
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return empty.first_outputs(int(static["outputs"]), output=ACTIVATIONS.find(static["output"]))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
