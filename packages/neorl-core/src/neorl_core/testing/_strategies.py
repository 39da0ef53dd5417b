"""Hypothesis strategies for numbers, arrays with a few fixed shapes, episodes and padded graphs."""

from typing import Any, NamedTuple

import hypothesis.extra.numpy as hnp
import jax
import numpy as np
from hypothesis import strategies as st

from neorl_core.testing._transforms import ROWS

# Hypothesis strategies for numbers, arrays with a few fixed shapes, and ends of episodes.


LENGTHS = (1, 7)
"""Lengths of time axes and of samples; few, since every length costs a compilation."""


def reals(low: float = -100.0, high: float = 100.0) -> st.SearchStrategy[float]:
    """Finite float32 numbers in ``[low, high]``, without subnormals.

    Eager and compiled programs disagree about subnormals, and unbounded magnitudes test overflow
    instead of the formula.
    """
    low, high = float(np.float32(low)), float(np.float32(high))
    return st.floats(low, high, width=32, allow_nan=False, allow_subnormal=False)


def decades(low: float = 1e-9, high: float = 1e9) -> st.SearchStrategy[float]:
    """Float32 numbers of either sign, and zero, with magnitudes spread evenly over the decades.

    Logs hold pascals beside bar and fractions beside tonnes, whereas nearly all numbers sampled
    evenly from an interval have the magnitude of its ends.
    """
    ends = float(np.log10(low)), float(np.log10(high))
    sizes = st.floats(*ends, allow_nan=False).map(lambda exponent: float(np.float32(10**exponent)))
    return st.one_of(st.just(0.0), sizes, sizes.map(lambda size: -size))


@st.composite
def in_units(
    draw: st.DrawFn,
    samples: st.SearchStrategy[Any],
    *,
    low: int = -9,
    high: int = 9,
    base: int = 10,
) -> Any:
    """Samples whose floating arrays are all multiplied by one power of ten, different for each row.

    For functions that keep their form if the unit of all their arguments changes. Powers of a
    ``base`` of two do not round, so ties remain ties in every unit. Subnormals become zero.
    """
    exponents = draw(st.tuples(*[st.integers(low, high)] * ROWS))
    factors = float(base) ** np.asarray(exponents, np.float64)

    def scaled(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray) or leaf.dtype != np.float32:
            return leaf
        scaled = (leaf * factors.reshape(-1, *[1] * (leaf.ndim - 1))).astype(np.float32)
        return np.where(np.abs(scaled) < np.finfo(np.float32).tiny, 0, scaled).astype(np.float32)

    return jax.tree.map(scaled, draw(samples))


def arrays(
    *shape: int, elements: st.SearchStrategy[float] | None = None
) -> st.SearchStrategy[np.ndarray]:
    """Float32 arrays of one shape, with independent entries.

    By default Hypothesis fills most of an array with one value (a median of four distinct values in
    64); this strategy does not.
    """
    elements = reals() if elements is None else elements
    return hnp.arrays(np.float32, shape, elements=elements, fill=st.nothing())


def rows(
    *shape: int, elements: st.SearchStrategy[float] | None = None
) -> st.SearchStrategy[np.ndarray]:
    """``ROWS`` samples of ``shape``, stacked: one argument of :func:`everywhere`."""
    return arrays(ROWS, *shape, elements=elements)


def flags(*shape: int) -> st.SearchStrategy[np.ndarray]:
    """``ROWS`` boolean samples of ``shape``, stacked."""
    return hnp.arrays(np.bool_, (ROWS, *shape), elements=st.booleans(), fill=st.nothing())


def integers(*shape: int, low: int, high: int) -> st.SearchStrategy[np.ndarray]:
    """``ROWS`` int32 samples of ``shape`` in ``[low, high]``, stacked."""
    return hnp.arrays(np.int32, (ROWS, *shape), elements=st.integers(low, high), fill=st.nothing())


def lengths() -> st.SearchStrategy[int]:
    """One of ``LENGTHS``."""
    return st.sampled_from(LENGTHS)


def series(
    count: int = 1, *, elements: st.SearchStrategy[float] | None = None
) -> st.SearchStrategy[tuple[np.ndarray, ...]]:
    """``count`` arguments of shape ``(ROWS, length)`` with the same random length."""
    return lengths().flatmap(
        lambda length: st.tuples(*[rows(length, elements=elements) for _ in range(count)])
    )


def simplex(*shape: int) -> st.SearchStrategy[np.ndarray]:
    """``ROWS`` samples of ``shape`` whose last axis is positive and sums to one."""
    return rows(*shape, elements=reals(0.0625, 1.0)).map(
        lambda weights: weights / weights.sum(axis=-1, keepdims=True)
    )


def seeds() -> st.SearchStrategy[int]:
    """A seed, for laws that hold over a large number of random samples."""
    return st.integers(0, 2**31 - 1)


def keys() -> st.SearchStrategy[jax.Array]:
    """``ROWS`` typed random keys."""
    return seeds().map(lambda seed: jax.random.split(jax.random.key(seed), ROWS))


def endings(length: int) -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
    """``(terminated, truncated)`` of one flat log: any pattern whose last row is an end."""
    kind = st.sampled_from(
        [(False, False), (False, False), (True, False), (False, True), (True, True)]
    )
    last = st.sampled_from([(True, False), (False, True), (True, True)])
    pattern = st.tuples(*[kind] * (length - 1), last).map(np.asarray)
    return pattern.map(lambda flags: (flags[:, 0], flags[:, 1]))


# A Hypothesis strategy for padded graphs.


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
