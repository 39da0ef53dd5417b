"""Slowly updated copies of parameters."""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import checked_probability, require_same_shape

Tree = TypeVar("Tree")


def polyak(target: Tree, online: Tree, *, tau: float | Float[Array, ""]) -> Tree:
    """The convex step ``(1 - tau) target + tau online``, leaf by leaf.

    Args:
        target: A PyTree of floating-point arrays.
        online: Same structure and shapes.
        tau: Fraction of the way to ``online``, in [0, 1]; 1 copies ``online``, 0 keeps ``target``;
            NaN results under ``jit`` if it is outside.

    Returns:
        The new target; dtypes are those of ``target``.

    Raises:
        ValueError: If structures or shapes differ, a leaf of ``target`` is not floating, or a
            concrete ``tau`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> polyak({"w": jnp.zeros(2)}, {"w": jnp.ones(2)}, tau=0.25)["w"].tolist()
        [0.25, 0.25]

    Source: Polyak and Juditsky, Acceleration of stochastic approximation by averaging, 1992; as
    target networks in Lillicrap et al., arXiv 1509.02971.
    """
    tau = checked_probability("tau", tau, closed=True)
    if jax.tree.structure(target) != jax.tree.structure(online):
        raise ValueError(
            f"target and online must have one structure; {_apart(target, online)}; give the "
            "parameters of one network"
        )

    def towards(old: Array, new: Array) -> Array:
        if not jnp.issubdtype(old.dtype, jnp.floating):
            raise ValueError(
                f"target must be floating point, got a leaf of type {old.dtype}; leave counters "
                "and keys out"
            )
        require_same_shape("a leaf of target", old, "its leaf of online", new)
        return ((1 - tau) * old + tau * new).astype(old.dtype)

    return jax.tree.map(towards, target, online)


def _apart(target: Tree, online: Tree) -> str:
    """Describes a leaf that only one of two trees has, or the types that differ."""
    leaves = [
        {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)}
        for tree in (target, online)
    ]
    for name, only in (("target", leaves[0] - leaves[1]), ("online", leaves[1] - leaves[0])):
        if only:
            return f"only {name} has the leaf {min(only)}"
    return f"they are of types {type(target).__name__} and {type(online).__name__}"
