"""Padded graphs and message passing."""

from neorl_core.graphs._message_passing import edge_softmax as edge_softmax
from neorl_core.graphs._message_passing import graph_convolution as graph_convolution
from neorl_core.graphs._message_passing import pool_edges as pool_edges
from neorl_core.graphs._padded_graph import PaddedGraph as PaddedGraph
from neorl_core.graphs._padded_graph import pad_graph as pad_graph

__all__ = [
    "PaddedGraph",
    "edge_softmax",
    "graph_convolution",
    "pad_graph",
    "pool_edges",
]
