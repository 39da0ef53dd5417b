"""Products of stacks of matrices, as attention has them, in the form for NumPy alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_deploy.bundle import ArrayEntry
from neorl_deploy.export._numpy_form import NoSuchOperationError, operation_list
from neorl_deploy.runtime import as_function

LEFT, RIGHT = (np.random.default_rng(i).normal(size=(3, 3, 3)).astype(np.float32) for i in (0, 1))
INPUTS = [ArrayEntry(name, (3, 3, 3), "float32") for name in ("left", "right")]


@pytest.mark.parametrize("over", ["hsd,htd->hst", "shd,thd->hst", "hst,thd->hsd", "dsh,dth->dst"])
def test_a_product_of_stacks_is_that_of_jax(over):
    def product(left, right):
        return (jnp.einsum(over, left, right),)

    expected = np.einsum(over, LEFT, RIGHT)
    actual = as_function(operation_list(product, INPUTS))(LEFT, RIGHT)[0]
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("over", ["ri,mio->rmo", "mio,ri->mor", "rqi,mio->rqmo", "i,mio->mo"])
def test_several_networks_on_the_same_rows_are_one_product(over):
    sizes = {"r": 2, "q": 4, "i": 3, "m": 5, "o": 6}
    rng = np.random.default_rng(7)
    sides = [
        rng.normal(size=[sizes[axis] for axis in axes]).astype(np.float32)
        for axes in over.split("->")[0].split(",")
    ]
    entries = [
        ArrayEntry(name, side.shape, "float32")
        for name, side in zip(("left", "right"), sides, strict=True)
    ]
    actual = as_function(operation_list(lambda a, b: (jnp.einsum(over, a, b),), entries))(*sides)[0]
    np.testing.assert_allclose(actual, np.einsum(over, *sides), rtol=1e-5, atol=1e-6)


def test_a_product_over_two_axes_has_no_such_form():
    with pytest.raises(NoSuchOperationError, match="a product over several axes"):
        operation_list(
            lambda left, right: (jax.lax.dot_general(left, right, (((1, 2), (1, 2)), ((), ()))),),
            INPUTS,
        )


def test_a_product_in_a_form_for_each_platform_takes_the_plain_one():
    """As the affine layers of several heads at once have it; the CPU's form holds a loop here."""

    def looped(left, right):
        return jax.lax.fori_loop(0, 1, lambda _, x: x @ right, left)

    def product(left, right):
        forms = {"cpu": looped, "default": lambda a, b: a @ b}
        return (jax.lax.platform_dependent(left[0], right[0], **forms),)

    actual = as_function(operation_list(product, INPUTS))(LEFT, RIGHT)[0]
    np.testing.assert_allclose(actual, LEFT[0] @ RIGHT[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(NoSuchOperationError, match="a form for"):
        operation_list(lambda x, y: (jax.lax.platform_dependent(x, y, cuda=jnp.add),), INPUTS)
