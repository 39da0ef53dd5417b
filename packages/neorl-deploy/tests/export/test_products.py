"""Products of stacks of matrices, as attention has them, in the form for NumPy alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_deploy.bundle._manifest import ArrayEntry
from neorl_deploy.export._operations import NoSuchOperationError, listed
from neorl_deploy.runtime._operations import prepared

LEFT, RIGHT = (np.random.default_rng(i).normal(size=(3, 3, 3)).astype(np.float32) for i in (0, 1))
INPUTS = [ArrayEntry(name, (3, 3, 3), "float32") for name in ("left", "right")]


@pytest.mark.parametrize("over", ["hsd,htd->hst", "shd,thd->hst", "hst,thd->hsd", "dsh,dth->dst"])
def test_a_product_of_stacks_is_that_of_jax(over):
    def product(left, right):
        return (jnp.einsum(over, left, right),)

    expected = np.einsum(over, LEFT, RIGHT)
    actual = prepared(listed(product, INPUTS))(LEFT, RIGHT)[0]
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_a_product_over_two_axes_has_no_such_form():
    with pytest.raises(NoSuchOperationError, match="a product over several axes"):
        listed(
            lambda left, right: (jax.lax.dot_general(left, right, (((1, 2), (1, 2)), ((), ()))),),
            INPUTS,
        )
