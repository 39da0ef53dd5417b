import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.losses import masked_mean
from neorl_core.testing import Edge, Refusal, Row, assert_close, flags, in_units, mapped, rows


def mean_of_the_chosen(x, mask):
    return np.mean(x[mask]) if mask.any() else 0.0


def masked_values_are_inert(x, mask):
    spoiled = np.where(mask, x, np.nan).astype(np.float32)
    assert_close(mapped(masked_mean, spoiled, mask), mapped(masked_mean, x, mask))


def no_mask_counts_all(x, mask):
    assert_close(mapped(_unmasked, x), mapped(masked_mean, x, np.ones_like(mask)))


def nothing_counts_zero(x, mask):
    """Of no element the mean is zero, with a mask and without, in the dtype of the array."""
    for dtype in (jnp.bfloat16, jnp.float32):
        empty = jnp.zeros(0, dtype)
        for none in (None, jnp.zeros(0, bool)):
            mean = masked_mean(empty, none)
            assert (mean.shape, mean.dtype, float(mean)) == ((), dtype, 0.0)
        nothing_kept = masked_mean(jnp.full(3, jnp.nan, dtype), jnp.zeros(3, bool))
        assert (nothing_kept.dtype, float(nothing_kept)) == (dtype, 0.0)


def _unmasked(x):
    return masked_mean(x, None)


ROWS = [
    Row(
        masked_mean,
        sample=in_units(st.tuples(rows(7), flags(7))),
        oracle=mean_of_the_chosen,
        laws=[masked_values_are_inert, no_mask_counts_all, nothing_counts_zero],
        edges=[
            Edge((np.ones(7), np.zeros(7, bool))),
            Edge((np.zeros(0), np.zeros(0, bool))),
        ],
        refuses=[Refusal("x and mask must have one shape", (jnp.ones(3), jnp.ones(2, bool)))],
    ),
]
