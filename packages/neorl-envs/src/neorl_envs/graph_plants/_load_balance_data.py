"""Data of a LoadBalance: topology, state, random draws, information of a step."""

from typing import NamedTuple

from jaxtyping import Array, Bool, Float, Int


class Topology(NamedTuple):
    """The parameters of one episode: which nodes and links there are, and how they behave.

    Attributes:
        nodes: Which of the declared nodes are there; the missing ones are the last.
        links: Which of the declared pairs are linked when an episode begins.
        change: Chance a step that a link outside the chain is drawn anew.
        density: Chance that a link that is drawn anew is there.
        rate: Part of the difference in load that one move carries over a link.
    """

    nodes: Bool[Array, " node"]
    links: Bool[Array, " pair"]
    change: Float[Array, ""]
    density: Float[Array, ""]
    rate: Float[Array, ""]


class BalanceState(NamedTuple):
    """A network between two steps.

    Attributes:
        loads: Load of every declared node, in [0, 1]; zero where the node is missing.
        links: Which of the declared pairs are linked now.
        time: Steps done.
    """

    loads: Float[Array, " node"]
    links: Bool[Array, " pair"]
    time: Int[Array, ""]


class BalanceNoise(NamedTuple):
    """Everything that chance adds to one step; each uniform in [0, 1), one number a pair.

    Attributes:
        change: The link is drawn anew where this is below ``Topology.change``.
        there: It is there then where this is below ``Topology.density``.
    """

    change: Float[Array, " pair"]
    there: Float[Array, " pair"]


class Balance(NamedTuple):
    """Information of a step besides the observation.

    Attributes:
        spread: Standard deviation of the loads of the nodes that are there (divisor ``n - 1``).
        moved: Whether the link that was asked for exists, so that load could move.
    """

    spread: Float[Array, ""]
    moved: Bool[Array, ""]
