"""The node or edge that each channel of a plant belongs to, by its name or by declaration."""

import dataclasses
import functools
import re
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_core import InputError, Spec, highs, lows
from neorl_core.infrastructure import unknown_name

NODE = re.compile(r"([A-Za-z_]+)(\d+)\.(\w+)")
EDGE = re.compile(r"([A-Za-z_]+)(\d+)-(\d+)\.(\w+)")
ELEMENT = re.compile(r"[A-Za-z_]+\d+(-\d+)?(\.\w+)?")
MASK = "there"
"""The feature that tells whether a node or an edge is present."""

NONE = -1
"""Stands for a column that a node or an edge does not have."""

Columns = tuple[tuple[int, ...], ...]


class GraphLayout(NamedTuple):
    """Layout of a graph in a row of channels; only integers, so that it is static and hashable.

    Nodes are numbered in the order of their channels. A feature that only some nodes have is zero
    at the others. Outputs are the action channels.

    Attributes:
        n_obs: Number of observation channels.
        n_action: Number of action channels.
        node_columns: The channel of each feature, for every node.
        node_masks: The channel that tells whether a node is present, for every node.
        edge_columns: The channel of each feature, for every edge.
        edge_masks: The channel that tells whether an edge is present, for every edge.
        senders: The node that each edge leaves.
        receivers: The node that each edge enters.
        shared: Channels of the whole plant, which every node receives.
        node_actions: For every action at a node: its index, the node, its index within its kind.
        edge_actions: The same for actions at an edge.
        other_actions: Indices of the actions of the whole plant.
    """

    n_obs: int
    n_action: int
    node_columns: Columns
    node_masks: tuple[int, ...]
    edge_columns: Columns
    edge_masks: tuple[int, ...]
    senders: tuple[int, ...]
    receivers: tuple[int, ...]
    shared: tuple[int, ...]
    node_actions: Columns
    edge_actions: Columns
    other_actions: tuple[int, ...]

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.node_columns)

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return len(self.senders)

    def with_actions(self) -> "GraphLayout":
        """The layout of a row of observations and actions; actions are features of their places."""
        first = self.n_obs
        return self._replace(
            n_obs=first + self.n_action,
            node_columns=_widen(self.node_columns, self.node_actions, first),
            edge_columns=_widen(self.edge_columns, self.edge_actions, first),
            shared=(*self.shared, *(first + i for i in self.other_actions)),
        )


def graph_layout(spec: Spec, graph: tuple[str, ...] = ()) -> GraphLayout:
    """The graph given by the names of a plant's channels and by further declarations.

    ``tank3.level`` is the feature ``level`` of the node ``tank3``, ``pipe2-3.flow`` the feature
    ``flow`` of the edge from the node numbered 2 to that numbered 3. The feature ``there`` tells
    whether the node or edge is present. All other names belong to the whole plant. No two kinds of
    nodes may share a number, because an edge finds its ends by number.

    Args:
        spec: Channels of the plant.
        graph: Places of channels with other names, ``"LI-101 = tank3.level"``, and nodes or
            edges without a channel of their own, ``"source7"`` or ``"line2-3"``.

    Returns:
        The layout; the same object for equal specifications.

    Raises:
        InputError: If no channel names a node, an end of an edge is not named anywhere, two kinds
            of nodes share a number, or a declaration does not fit the channels.

    Example:
        >>> from neorl_core import Channel
        >>> level, feed = Channel("LI-101", "m", 0, 2), Channel("FC-7", "1", 0, 1)
        >>> spec = Spec((level,), (feed,), (), dt=1.0, horizon=10)
        >>> layout = graph_layout(
        ...     spec, ("LI-101 = tank1.level", "FC-7 = tank1.feed", "source2", "pipe2-1"))
        >>> layout.n_nodes, layout.senders, layout.receivers, layout.node_actions
        (2, (1,), (0,), ((0, 0, 0),))
    """
    return _layout(spec, tuple(graph))


@functools.lru_cache(maxsize=64)
def named_as_graph(spec: Spec, graph: tuple[str, ...]) -> Spec:
    """The specification with every declared channel renamed after its place.

    Args:
        spec: Channels of the plant.
        graph: The argument of :func:`graph_layout`; places without a channel change nothing.

    Raises:
        InputError: If a declaration does not name a channel, or a channel is declared twice or
            without a place.
    """
    elements: dict[str, str] = {}
    known = [channel.name for channel in (*spec.obs, *spec.action)]
    for line in graph:
        name, declared, element = (part.strip() for part in line.rpartition("="))
        match = ELEMENT.fullmatch(element)
        if not match or bool(declared) != bool(match[2]):
            raise InputError(
                f"networks.graph: {line!r} cannot be read; write a channel and its node or edge, "
                "such as 'LI-101 = tank3.level', or a node or an edge without a channel, such as "
                "'source7' or 'line2-3'"
            )
        if declared and name not in known:
            raise unknown_name("channel in networks.graph", name, known)
        if declared and name in elements:
            raise InputError(
                f"networks.graph assigns {name} to both {elements[name]} and {element}; assign it "
                "once"
            )
        if declared:
            elements[name] = element
    if not elements:
        return spec
    obs, action = (
        tuple(
            dataclasses.replace(channel, name=elements.get(channel.name, channel.name))
            for channel in channels
        )
        for channels in (spec.obs, spec.action)
    )
    try:
        return dataclasses.replace(spec, obs=obs, action=action)
    except ValueError as error:
        raise InputError(
            f"networks.graph assigns two channels to the same quantity: {error}"
        ) from error


@functools.lru_cache(maxsize=64)
def _layout(spec: Spec, graph: tuple[str, ...]) -> GraphLayout:
    spec, undeclared = (
        named_as_graph(spec, graph),
        [line.strip() for line in graph if "=" not in line],
    )
    nodes, edges = _elements(spec, undeclared, NODE), _elements(spec, undeclared, EDGE)
    if not nodes:
        raise InputError(
            "a graph network needs channels that name their node, such as tank3.level, but this "
            'plant has none; assign its channels with networks.graph = ["LI-101 = tank3.level", '
            "...], or use a network kind without a graph, such as mlp"
        )
    numbers = {number: i for i, (_, number) in enumerate(nodes)}
    if len(numbers) < len(nodes):
        kinds = sorted({kind for kind, _ in nodes})
        raise InputError(
            f"nodes of the kinds {', '.join(kinds)} have the same number, so the ends of an edge "
            "are ambiguous; give every node of the plant its own number"
        )
    for kind, sender, receiver in edges:
        for end in (sender, receiver):
            if end not in numbers:
                raise InputError(
                    f"the edge {kind}{sender}-{receiver} ends at node {end}, which no channel "
                    f"names; give that node a channel, or declare it without one as node{end} in "
                    "networks.graph"
                )
    shared = tuple(
        i for i, channel in enumerate(spec.obs)
        if not NODE.fullmatch(channel.name) and not EDGE.fullmatch(channel.name)
    )  # fmt: skip
    node_columns, edge_columns = _columns(spec.obs, NODE, nodes), _columns(spec.obs, EDGE, edges)
    node_actions, edge_actions = _actions(spec, NODE, nodes), _actions(spec, EDGE, edges)
    assigned = {number for number, _, _ in (*node_actions, *edge_actions)}
    return GraphLayout(
        n_obs=spec.n_obs,
        n_action=spec.n_action,
        node_columns=node_columns[0],
        node_masks=node_columns[1],
        edge_columns=edge_columns[0],
        edge_masks=edge_columns[1],
        senders=tuple(numbers[sender] for _, sender, _ in edges),
        receivers=tuple(numbers[receiver] for _, _, receiver in edges),
        shared=shared,
        node_actions=node_actions,
        edge_actions=edge_actions,
        other_actions=tuple(i for i in range(spec.n_action) if i not in assigned),
    )


def pooled_scaling(
    spec: Spec, mean: Float[Array, " obs"], std: Float[Array, " obs"]
) -> tuple[Float[Array, " obs"], Float[Array, " obs"]]:
    """Mean and standard deviation, pooled for each feature of nodes or edges of one kind.

    A network that treats nodes alike must receive them on one scale: the mean over the nodes, and
    the standard deviation of all their rows together. Channels that tell whether something is
    present are mapped from their range to [-1, 1]. Other channels stay as they are.

    Args:
        spec: Channels of the plant.
        mean: Mean of every observation channel.
        std: Standard deviation of every observation channel.
    """
    group, masks = _groups(spec)
    if len(set(group)) == len(group) and not any(masks):
        return mean, std
    matrix = np.eye(max(group) + 1, dtype=np.float32)[list(group)]
    average, spread = jnp.asarray(matrix / matrix.sum(axis=0)), jnp.asarray(matrix)
    pooled = spread @ (mean @ average)
    square = spread @ ((jnp.square(std) + jnp.square(mean - pooled)) @ average)
    low, high = (jnp.asarray(ends(spec.obs), mean.dtype) for ends in (lows, highs))
    is_mask = jnp.asarray(masks)
    return (
        jnp.where(is_mask, (low + high) / 2, pooled),
        jnp.where(is_mask, (high - low) / 2, jnp.sqrt(square)),
    )


@functools.lru_cache(maxsize=64)
def _groups(spec: Spec) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """For every observation channel the index of its feature, and whether it is a mask."""
    names, masks = [], []
    for channel in spec.obs:
        element = _element(channel.name, NODE) or _element(channel.name, EDGE)
        names.append(element[1] if element else f"{channel.name} alone")
        masks.append(bool(element and element[2]))
    numbers = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return tuple(numbers[name] for name in names), tuple(masks)


def _element(name: str, pattern: re.Pattern[str]) -> Any:
    """Kind with the numbers, the feature, and whether it is a mask; ``None`` for other names."""
    match = pattern.fullmatch(name)
    if match is None:
        return None
    kind, *numbers, feature = match.groups()
    return (kind, *map(int, numbers)), f"{kind}.{feature}", feature == MASK


def _elements(spec: Spec, undeclared: list[str], pattern: re.Pattern[str]) -> list[Any]:
    """Nodes or edges in the order of their channels, then those without any."""
    names = [
        *(channel.name for channel in (*spec.obs, *spec.action)),
        *(f"{b}.x" for b in undeclared),
    ]
    return list(dict.fromkeys(element[0] for name in names if (element := _element(name, pattern))))


def _columns(
    channels: Any, pattern: re.Pattern[str], elements: list[Any]
) -> tuple[Columns, tuple[int, ...]]:
    indices, masks, features = {}, {}, {}
    for i, channel in enumerate(channels):
        parsed = _element(channel.name, pattern)
        if parsed and parsed[2]:
            masks[parsed[0]] = i
        elif parsed:
            indices[parsed[0], parsed[1]] = i
            features[parsed[1]] = None
    columns = tuple(
        tuple(indices.get((element, name), NONE) for name in features) for element in elements
    )
    return columns, tuple(masks.get(element, NONE) for element in elements)


def _actions(spec: Spec, pattern: re.Pattern[str], elements: list[Any]) -> Columns:
    number = {element: i for i, element in enumerate(elements)}
    parsed = [_element(channel.name, pattern) for channel in spec.action]
    kinds = list(dict.fromkeys(channel[1] for channel in parsed if channel))
    return tuple(
        (i, number[channel[0]], kinds.index(channel[1]))
        for i, channel in enumerate(parsed)
        if channel
    )


def _widen(columns: Columns, actions: Columns, first: int) -> Columns:
    kinds = 1 + max((kind for _, _, kind in actions), default=NONE)
    columns_added = [[NONE] * kinds for _ in columns]
    for number, element, kind in actions:
        columns_added[element][kind] = first + number
    return tuple((*old, *new) for old, new in zip(columns, columns_added, strict=True))
