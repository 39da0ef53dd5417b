"""The ratios of probabilities that weigh the steps of another policy."""

import numpy as np
from jaxtyping import Array, ArrayLike

from neorl_core._internal.checks import is_concrete, nan_unless
from neorl_core._internal.float_widths import widened


def require_ratios(ratio: ArrayLike) -> Array:
    """The ratios, float32 at least.

    Refuses negative ones where they are known, such as logarithms; a traced one becomes NaN. A
    ratio that is NaN itself spoils its own episode only, and passes.
    """
    if is_concrete(ratio) and np.any(np.asarray(ratio) < 0):
        raise ValueError(
            f"ratio must not be negative, got {np.min(np.asarray(ratio))} at least; give the ratio "
            "of the probabilities, jnp.exp of a difference of their logarithms"
        )
    ratio = widened(ratio)
    return ratio if is_concrete(ratio) else nan_unless(~(ratio < 0), ratio)
