"""Data of a LoadBalance: topology, state, random numbers, information of a step."""

from typing import NamedTuple

from jaxtyping import Array, Bool, Float, Int


class Topology(NamedTuple):
    """The parameters of one episode: existing nodes and links, and how links change.

    Attributes:
        nodes: Which of the declared nodes exist; missing nodes are the last ones.
        links: Which of the declared pairs are linked at the start of the episode.
        change: Probability per step that a link outside the chain is sampled again.
        density: Probability that a sampled link exists.
        rate: Fraction of the difference in load that one move transfers over a link.
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
        links: Which of the declared pairs are currently linked.
        time: Number of steps so far.
    """

    loads: Float[Array, " node"]
    links: Bool[Array, " pair"]
    time: Int[Array, ""]


class BalanceNoise(NamedTuple):
    """Random numbers of one step, uniform in [0, 1), one per pair.

    Attributes:
        change: A link is sampled again if this is below ``Topology.change``.
        there: A sampled link exists if this is below ``Topology.density``.
    """

    change: Float[Array, " pair"]
    there: Float[Array, " pair"]


class Balance(NamedTuple):
    """Information of a step besides the observation.

    Attributes:
        spread: Standard deviation of the loads of existing nodes (divisor ``n - 1``).
        moved: Whether the requested link exists, so that load could move.
    """

    spread: Float[Array, ""]
    moved: Bool[Array, ""]
