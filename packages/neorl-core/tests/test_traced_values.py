"""A value outside its range that is known only while the program runs: what the table cannot say.

That it gives NaN, is a law of every row (``check_bad_values``).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core._internal.checks import checked_positive, checked_probability


def test_jax_with_debug_nans_says_which_traced_number_was_wrong():
    """A NaN makes JAX run the call again uncompiled, where the number is known and refused."""
    call = jax.jit(lambda number: 2.0 * checked_positive("size", number))
    with jax.debug_nans(True):
        call(1.0)
        with pytest.raises(ValueError, match=r"^size must be finite and positive, got -2.0; "):
            jax.block_until_ready(call(-2.0))


def test_an_integer_is_judged_like_any_other():
    judge = jax.jit(lambda number: checked_probability("fraction", number, closed=True))
    assert judge(1) == 1
    assert np.isnan(judge(2))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_a_traced_value_keeps_its_dtype_and_the_gradient(dtype):
    """What judges the value neither widens it nor puts NaN into its slope."""
    judge = jax.jit(jax.value_and_grad(lambda number: checked_positive("size", number) ** 2))
    value, slope = judge(jnp.asarray(3.0, dtype))
    assert value.dtype == slope.dtype == dtype
    assert float(slope) == 6.0
