"""The probability ratios that weight the steps of another policy."""

import numpy as np
from jaxtyping import Array, ArrayLike

from neorl_core._internal.checks import is_concrete, nan_unless
from neorl_core._internal.float_widths import widened


def require_ratios(ratio: ArrayLike) -> Array:
    """The probability ratios as floats, in float32 or wider.

    Raises an error for concrete negative values, which may be logarithms; a traced one becomes NaN.
    A ratio that is NaN is accepted, since it affects only its own episode.
    """
    if is_concrete(ratio) and np.any(np.asarray(ratio) < 0):
        raise ValueError(
            f"ratio must not be negative, got {np.min(np.asarray(ratio))} at least; give the ratio "
            "of the probabilities, jnp.exp of a difference of their logarithms"
        )
    ratio = widened(ratio)
    return ratio if is_concrete(ratio) else nan_unless(~(ratio < 0), ratio)
