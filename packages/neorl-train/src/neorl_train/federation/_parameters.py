"""Parameters as one vector, the form that is exchanged between sites."""

import math
from typing import Any, NamedTuple

import jax
import numpy as np

from neorl_core import InputError

Vector = np.ndarray
"""Float32, shape ``(parameter,)``."""


class Layout(NamedTuple):
    """Position of every parameter in the vector.

    Attributes:
        structure: Structure of the parameter tree.
        shapes: Shape of every leaf, in tree order.
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(math.prod(shape) for shape in self.shapes)

    def tree(self, vector: Vector) -> Any:
        """The parameter tree of a vector."""
        leaves, start = [], 0
        for shape in self.shapes:
            stop = start + math.prod(shape)
            leaves.append(np.array(vector[start:stop]).reshape(shape))
            start = stop
        return jax.tree.unflatten(self.structure, leaves)


def layout_of(parameters: Any, learner: str) -> Layout:
    """Layout of the parameters of a learner in the vector.

    Args:
        parameters: Tree of float32 arrays.
        learner: Name of the learner, for messages.

    Raises:
        InputError: If a leaf has another type, for which a mean would be meaningless.
    """
    leaves, structure = jax.tree.flatten(parameters)
    for leaf in leaves:
        if leaf.dtype != np.float32:
            raise InputError(
                f"the parameters of {learner} hold an array of {leaf.dtype}, and only float32 "
                "arrays are averaged between sites; keep counters and keys out of the parameters"
            )
    return Layout(structure, tuple(np.shape(leaf) for leaf in leaves))


def flat(parameters: Any) -> Vector:
    """The parameters as one vector, on the host."""
    leaves = jax.device_get(jax.tree.leaves(parameters))
    return np.concatenate([np.asarray(leaf, np.float32).ravel() for leaf in leaves])
