"""Slowly moving copies of parameters."""

from typing import TypeVar

import jax
from jaxtyping import Array, Float

Tree = TypeVar("Tree")


def polyak(target: Tree, online: Tree, *, rate: float | Float[Array, ""]) -> Tree:
    """The convex step ``(1 - rate) target + rate online``, leaf by leaf.

    Args:
        target: A PyTree of floating-point arrays.
        online: Same structure and shapes.
        rate: In [0, 1]; 1 copies ``online``, 0 keeps ``target``.

    Returns:
        The new target; dtypes are those of ``target``.

    Source: Polyak and Juditsky, Acceleration of stochastic approximation by averaging, 1992; as
    target networks in Lillicrap et al., arXiv 1509.02971.
    """

    def towards(old: Array, new: Array) -> Array:
        return ((1 - rate) * old + rate * new).astype(old.dtype)

    return jax.tree.map(towards, target, online)
