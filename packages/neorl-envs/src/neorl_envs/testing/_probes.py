"""Single steps from states inside the episodes, on which laws test the effect of one change."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_envs.testing._evidence import Evidence


class Probe(NamedTuple):
    """Stacked states from inside the episodes; the first axis of every leaf is that of the probes.

    Attributes:
        params: Parameters of the world.
        state: State before a step.
        action: Action demanded in that step.
        key: Random key of each probe.
    """

    params: Any
    state: Any
    action: np.ndarray
    key: PRNGKeyArray


def probes(evidence: Evidence) -> Probe:
    """Three states of every world, the last of which is the one before its end."""
    rows = []
    for world, alive in enumerate(evidence.alive):
        times = np.flatnonzero(alive)
        rows += [(world, times[int(part * (len(times) - 1))]) for part in (0.1, 0.5, 1.0)]
    world, time = np.asarray(rows).T
    return Probe(
        jax.tree.map(lambda leaf: np.asarray(leaf)[world], evidence.params),
        jax.tree.map(lambda leaf: np.asarray(leaf)[world, time], evidence.states),
        evidence.actions[world, time],
        jax.random.split(jax.random.fold_in(evidence.key, 11), len(rows)),
    )


def of_every_probe(function: Callable[..., Any], probe: Probe) -> Any:
    """Results of a function of params, state, action and key for every probe, on the host."""
    return jax.device_get(jax.jit(jax.vmap(function))(*probe))


def first_difference(one: Any, other: Any, relative: float) -> str:
    """Path of the first leaf in which two trees differ by more than a tolerance, or ``""``.

    The tolerance is relative to the size of the leaf. Equal infinities and NaN in the same place do
    not count as differences.
    """
    pairs = zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True)
    for (path, a), b in pairs:
        a, b = np.asarray(a), np.asarray(b)
        if not np.issubdtype(a.dtype, np.number):
            same = np.array_equal(a, b)
        else:
            size = np.max(np.abs(a[np.isfinite(a)], dtype=np.float64), initial=0.0)
            tolerance = relative * max(size, 1e-30)
            same = np.allclose(a, b, rtol=0, atol=tolerance, equal_nan=True)
        if not same:
            return jax.tree_util.keystr(path) or "the value"
    return ""
