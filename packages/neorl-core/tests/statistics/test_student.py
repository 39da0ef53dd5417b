"""Student's quantiles, on which intervals stand, against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from neorl_core.statistics._intervals import (
    student_quantile,
)

DEGREES = np.asarray([0.2, 0.5, 1, 1.5, 4, 30, 100, 190, 1e3, 9.9e3, 1.1e4, 1e8])


@pytest.mark.nightly
def test_quantiles_of_few_degrees_and_far_tails():
    p = np.asarray([1e-12, 1e-6, 0.025, 0.3, 0.4999, 0.6, 0.975, 1 - 1e-9, 1 - 1e-12])[:, None]
    p, degrees = np.broadcast_arrays(p, DEGREES)
    with jax.enable_x64(True):
        double = jax.jit(student_quantile)(p, degrees)
    np.testing.assert_allclose(double, stats.t.ppf(p, degrees), rtol=1e-8)
    low = p[:, 0] < 0.99  # Nearer to 1 than that float32 is coarse, or 1.
    p, degrees = p[low].astype(np.float32), degrees[low].astype(np.float32)
    single = jax.jit(student_quantile)(p, degrees)
    expected = stats.t.ppf(p.astype(np.float64), degrees.astype(np.float64))
    expected = np.where(np.abs(expected) > np.finfo(np.float32).max, -np.inf, expected)
    np.testing.assert_allclose(single, expected, rtol=1e-4)


def test_quantiles_at_the_ends_and_in_the_middle():
    p, degrees = jnp.asarray([0.0, 0.5, 1.0, jnp.nan]), jnp.full(4, 3.0)
    np.testing.assert_array_equal(
        jax.jit(student_quantile)(p, degrees), [-np.inf, 0, np.inf, np.nan]
    )
