"""A Hypothesis strategy for padded graphs."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from neorl_core.testing._strategies import flags, integers, reals, rows


class GraphDraw(NamedTuple):
    """The plain arrays of a padded graph, from which tests build arguments of graph functions.

    Attributes:
        nodes: Features, shape ``(node, feature)``.
        senders: Index of the node that each edge leaves, shape ``(edge,)``.
        receivers: Index of the node that each edge enters, shape ``(edge,)``.
        node_mask: False for padding, shape ``(node,)``.
        edge_mask: False for padding, shape ``(edge,)``; a real edge joins real nodes.
    """

    nodes: np.ndarray
    senders: np.ndarray
    receivers: np.ndarray
    node_mask: np.ndarray
    edge_mask: np.ndarray


@st.composite
def padded_graphs(
    draw: st.DrawFn, *, nodes: int = 5, edges: int = 8, features: int = 2
) -> GraphDraw:
    """``ROWS`` graphs of one padded size: empty ones, isolated nodes, self-loops, double edges."""
    senders = draw(integers(edges, low=0, high=nodes - 1))
    receivers = draw(integers(edges, low=0, high=nodes - 1))
    node_mask = draw(flags(nodes))
    joined = np.take_along_axis(node_mask, senders, 1) & np.take_along_axis(node_mask, receivers, 1)
    return GraphDraw(
        nodes=draw(rows(nodes, features, elements=reals(-10, 10))),
        senders=senders,
        receivers=receivers,
        node_mask=node_mask,
        edge_mask=draw(flags(edges)) & joined,
    )
