"""Hypothesis strategies for transitions, trajectories and logs of many episodes."""

from typing import Any

import jax
import numpy as np
from hypothesis import strategies as st

from neorl_core._vocabulary.experience import Trajectory, Transition
from neorl_core.testing._strategies import LENGTHS, arrays, reals
from neorl_core.testing._transforms import ROWS


@st.composite
def transitions(draw: st.DrawFn, *, obs: int = 3, action: int = 2, cost: int = 1) -> Transition:
    """``ROWS`` unrelated transitions with every pattern of ends and masks."""
    return _transition(draw, (ROWS,), obs, action, cost)


@st.composite
def logs(
    draw: st.DrawFn, *, length: int = LENGTHS[-1], obs: int = 3, action: int = 2, cost: int = 1
) -> Transition:
    """``ROWS`` flat logs of ``length`` rows, each with several episodes that end anywhere.

    Within an episode ``next_obs`` is the following ``obs`` and ``next_action`` the following
    action. At the end of an episode ``next_obs`` is a separate observation and ``next_action`` is
    zero. The last row is an end. All four combinations of the two flags occur.
    """
    return jax.tree.map(
        lambda *leaves: np.stack(leaves),
        *[_log(draw, length, obs, action, cost, ends_inside=True) for _ in range(ROWS)],
    )


@st.composite
def trajectories(
    draw: st.DrawFn, *, length: int = LENGTHS[-1], obs: int = 3, action: int = 2, cost: int = 1
) -> Trajectory:
    """``ROWS`` single episodes of ``length`` steps that end terminated, truncated, or both."""
    return jax.tree.map(
        lambda *leaves: np.stack(leaves),
        *[_log(draw, length, obs, action, cost, ends_inside=False) for _ in range(ROWS)],
    )


def endings(length: int) -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
    """``(terminated, truncated)`` of one flat log: any pattern whose last row is an end."""
    kind = st.sampled_from(
        [(False, False), (False, False), (True, False), (False, True), (True, True)]
    )
    last = st.sampled_from([(True, False), (False, True), (True, True)])
    pattern = st.tuples(*[kind] * (length - 1), last).map(np.asarray)
    return pattern.map(lambda flags: (flags[:, 0], flags[:, 1]))


def _log(
    draw: st.DrawFn, length: int, obs: int, action: int, cost: int, *, ends_inside: bool
) -> Transition:
    free = _transition(draw, (length,), obs, action, cost)
    terminated, truncated = draw(endings(length))
    if not ends_inside:
        inner = np.arange(length) < length - 1
        terminated, truncated = terminated & ~inner, truncated & ~inner
    ends = terminated | truncated
    assert free.next_obs is not None
    next_obs, next_action = np.roll(free.obs, -1, axis=0), np.roll(free.action, -1, axis=0)
    fields: dict[str, Any] = {
        "next_obs": np.where(ends[:, None], free.next_obs, next_obs),
        "next_action": np.where(ends[:, None], np.float32(0), next_action),
        "terminated": terminated,
        "truncated": truncated,
        "mask": np.ones(length, bool),
    }
    return free._replace(**fields)


def _transition(
    draw: st.DrawFn, lead: tuple[int, ...], obs: int, action: int, cost: int
) -> Transition:
    def bits() -> np.ndarray:
        size = int(np.prod(lead))
        return np.asarray(draw(st.tuples(*[st.booleans()] * size)), bool).reshape(lead)

    # NumPy arrays stand in for JAX arrays here, since tests index and change them.
    fields: dict[str, Any] = {
        "obs": draw(arrays(*lead, obs)),
        "action": draw(arrays(*lead, action)),
        "reward": draw(arrays(*lead)),
        "cost": draw(arrays(*lead, cost, elements=reals(0, 10))),
        "next_obs": draw(arrays(*lead, obs)),
        "next_action": draw(arrays(*lead, action)),
        "terminated": bits(),
        "truncated": bits(),
        "mask": bits(),
    }
    return Transition(**fields)
