"""What ``core.py`` times: each case in our form and in that of a peer, at three sizes.

A case's functions get their data as a user holds it and give comparable numbers: they are compared
before they are timed. Compiled functions are warm by then.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Variants = Mapping[str, Callable[[], Any]]


class Case(NamedTuple):
    """One comparison.

    Attributes:
        name: What is computed.
        peer: Import name of the distribution that it is compared with.
        sizes: Three sizes; what they count is in ``unit``.
        unit: What a size counts.
        build: From a size to the two functions without arguments, ``ours`` and the peer's name.
        rtol: How near the two results must be; random intervals are only alike.
    """

    name: str
    peer: str
    sizes: tuple[int, int, int]
    unit: str
    build: Callable[[int], Variants]
    rtol: float = 1e-4


def random(*shape: int, seed: int = 0) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def pair(peer: str, ours: Callable, theirs: Callable, *args: Any) -> Variants:
    """Both compiled, on the same arguments."""
    import jax

    compiled = {"ours": jax.jit(ours), peer: jax.jit(theirs)}
    return {name: (lambda fn=fn: fn(*args)) for name, fn in compiled.items()}
