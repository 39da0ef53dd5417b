"""Hypothesis strategies for PyTrees, matrices and padded graphs."""

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from neorl_core.testing._strategies import arrays, flags, integers, reals, rows, seeds
from neorl_core.testing._transforms import ROWS


def pytrees(
    *, elements: st.SearchStrategy[float] | None = None, lead: tuple[int, ...] = (ROWS,)
) -> st.SearchStrategy[Any]:
    """Trees of float32 arrays with the leading axes ``lead``, in one of three structures.

    A single array, a nested dictionary like that of a network, and a tuple with a leaf of length
    zero and a scalar leaf.
    """

    def leaf(*shape: int) -> st.SearchStrategy[np.ndarray]:
        return arrays(*lead, *shape, elements=elements)

    layered = st.fixed_dictionaries(
        {
            "body": st.fixed_dictionaries({"weight": leaf(2, 3), "bias": leaf(2)}),
            "head": st.tuples(leaf(3)),
        }
    )
    return st.one_of(
        leaf(4), layered, st.tuples(leaf(2, 2), st.lists(leaf(), min_size=1, max_size=1), leaf(0))
    )


def positive_definite(size: int, *, floor: float = 0.5) -> st.SearchStrategy[np.ndarray]:
    """``ROWS`` symmetric matrices with all eigenvalues at least ``floor``, condition below 300."""

    def gram(factor: np.ndarray) -> np.ndarray:
        wide = factor.astype(np.float64)
        product = wide @ wide.transpose(0, 2, 1) + floor * np.eye(size)
        return product.astype(np.float32)

    return rows(size, size, elements=reals(-3, 3)).map(gram)


@st.composite
def conditioned(
    draw: st.DrawFn, size: int, *, decades: float = 6.0, rank: int | None = None
) -> np.ndarray:
    """``ROWS`` symmetric positive matrices whose eigenvalues are spread over ``decades``.

    The largest eigenvalue is one, and the axes are rotated at random, so that no single entry shows
    the smallest direction. If ``rank`` is below ``size``, the other eigenvalues are zero to
    rounding.
    """
    rank = size if rank is None else rank
    exponents = draw(arrays(ROWS, size, elements=reals(-decades, 0))).astype(np.float64)
    values = np.where(np.arange(size) < rank, 10.0 ** np.sort(exponents)[:, ::-1], 0)
    values[:, 0] = 1
    normals = np.random.default_rng(draw(seeds())).normal(size=(ROWS, size, size))
    axes, _ = np.linalg.qr(normals)
    matrices = (axes * values[:, None, :]) @ axes.transpose(0, 2, 1)
    return ((matrices + matrices.transpose(0, 2, 1)) / 2).astype(np.float32)


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
