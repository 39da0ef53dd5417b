import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import crossed_interval


@pytest.mark.parametrize("spreads", [(1.0, 1.0, 1.0), (0.3, 1.0, 1.0), (0.1, 1.0, 0.1)])
def test_it_covers_the_mean_of_fresh_rows_and_columns(spreads):
    row, column, rest = spreads
    draw = np.random.default_rng(0).normal
    samples = (
        draw(size=(4000, 4, 1)) * row
        + draw(size=(4000, 1, 64)) * column
        + draw(size=(4000, 4, 64)) * rest
    )
    interval = jax.jit(jax.vmap(crossed_interval))(jnp.asarray(samples, jnp.float32))
    covered = float(jnp.mean((interval.low <= 0) & (interval.high >= 0)))
    assert 0.93 <= covered <= 0.97
