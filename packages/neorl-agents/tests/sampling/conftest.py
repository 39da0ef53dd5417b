"""Logs of a fixed number of rows, with ends and masks anywhere, so that draws compile once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from neorl_core import Transition

ROWS = 24


def flags(chance: int) -> Any:
    """One flag a row, true about once in ``chance``."""
    one = st.integers(0, chance - 1).map(lambda n: n == 0)
    return st.lists(one, min_size=ROWS, max_size=ROWS).map(np.array)


@st.composite
def _logs(draw: Any) -> Transition:
    terminated = draw(flags(7))
    truncated = draw(flags(7)) & ~terminated
    mask = ~draw(flags(6))
    number = np.arange(ROWS, dtype=np.float32)
    rewards = draw(st.lists(st.integers(-8, 8), min_size=ROWS, max_size=ROWS))
    return Transition(
        obs=number[:, None],
        action=-number[:, None],
        reward=np.array(rewards, np.float32),
        next_obs=number[:, None] + 100,
        terminated=terminated,
        truncated=truncated,
        mask=mask,
    )


@pytest.fixture(scope="session")
def logs() -> Any:
    """Observations are numbers of rows, next ones those plus 100."""
    return _logs()


def _last(log: Transition, row: int) -> int:
    """Last row of the episode of ``row``, by a loop."""
    while row < ROWS - 1 and not (log.terminated[row] or log.truncated[row]):
        row += 1
    return row


@pytest.fixture(scope="session")
def last_row() -> Any:
    return _last


_jitted = jax.jit(
    lambda sampler, tables, number, key, shape: sampler.draw(tables, number, key, shape),
    static_argnums=(0, 4),
)


@pytest.fixture(scope="session")
def drawn() -> Any:
    """``draw`` of a sampler as one compiled program for all logs."""

    def draw(sampler: Any, log: Transition, number: int = 0, shape: Any = (2, 32)) -> Any:
        tables = jax.tree.map(jnp.asarray, sampler.tables(log))
        return jax.device_get(_jitted(sampler, tables, jnp.int32(number), jax.random.key(0), shape))

    return draw
