"""What a traced program does, before it is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

FACTORISATIONS = frozenset(
    {"cholesky", "eig", "eigh", "geqrf", "lu", "qr", "schur", "svd", "triangular_solve"}
)
"""Names of operations that are kernels of LAPACK on a processor."""


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a program and of the programs within it.

    Args:
        jaxpr: A program as :func:`jax.make_jaxpr` gives it, or the attribute ``jaxpr`` of one.
    """
    import jax  # a command that only prints its help imports this package, too

    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for leaf in jax.tree.leaves(equation.params, is_leaf=_is_program):
            if _is_program(leaf):
                yield from equations(leaf)


def factorises(jaxpr: Any) -> bool:
    """Whether a program factorises matrices or solves with factors.

    On a processor such an operation waits, in a thread of the pool that all programs share, for
    other threads of it. Two programs at a time can then occupy all threads of a small machine and
    wait for each other for ever, so such programs must run one at a time.

    Args:
        jaxpr: A program as :func:`jax.make_jaxpr` gives it.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> factorises(jax.make_jaxpr(jnp.linalg.inv)(jnp.eye(2)))
        True
    """
    return any(one.primitive.name in FACTORISATIONS for one in equations(jaxpr))


def _is_program(leaf: Any) -> bool:
    return hasattr(leaf, "eqns") or hasattr(leaf, "jaxpr")
