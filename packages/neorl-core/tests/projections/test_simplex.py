"""Projections onto the simplex from far away."""

import jax
import numpy as np
import pytest

from neorl_core.projections import project_simplex


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1e8, 0.0, 0.0], [1.0, 0.0, 0.0]),
        ([1e7, 1e7 - 0.5, 0.0], [0.5, 0.5, 0.0]),  # In float32 the second is 1e7 too.
        ([4e6, 4e6 - 0.5, 0.0], [0.75, 0.25, 0.0]),
        ([1e7, 1e7 - 1.0, -1e30], [1.0, 0.0, 0.0]),
        ([-3e38, 3e38], [0.0, 1.0]),
    ],
)
def test_a_projection_onto_the_simplex_sums_to_one_far_from_it(values, expected):
    given = np.asarray(values, np.float32)
    np.testing.assert_allclose(jax.jit(project_simplex)(given), expected, atol=1e-6)
    slope = jax.jit(jax.jacobian(project_simplex))(given)
    assert np.all(np.isfinite(slope))


def test_a_common_offset_changes_no_projection():
    values = np.asarray([0.25, -0.5, 0.125, 0.0], np.float32)
    for offset in (2.0**10, 2.0**20, -(2.0**20)):
        np.testing.assert_array_equal(
            project_simplex(values + np.float32(offset)), project_simplex(values)
        )
