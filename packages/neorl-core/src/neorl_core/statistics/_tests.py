"""A test of whether paired results differ, and the correction for testing several hypotheses."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, DTypeLike, Float

from neorl_core._internal.checks import (
    floats,
    is_concrete,
    require_choice,
    require_length,
    require_rank,
    require_same_shape,
)
from neorl_core._internal.precision import narrow, widen
from neorl_core.statistics._ranks import ranks_in_order, sizes_and_signs

# A test of whether paired results differ.


Alternative = Literal["two-sided", "greater", "less"]
_EXACT_PAIRS = 60


class PairedTest(NamedTuple):
    """Result of a test of paired samples.

    Attributes:
        statistic: The test statistic, scalar.
        p_value: Probability of a statistic at least as extreme if the pairs do not differ, scalar
            in [0, 1].
    """

    statistic: Float[Array, ""]
    p_value: Float[Array, ""]


def wilcoxon_test(
    first: Float[ArrayLike, " pair"],
    second: Float[ArrayLike, " pair"],
    *,
    alternative: Alternative = "two-sided",
) -> PairedTest:
    """Wilcoxon's signed-rank test: assumes only that differences are symmetric about zero.

    The absolute differences that are not zero are ranked (ties share midranks); the statistic ``W``
    is the rank sum of the positive ones. For up to 60 pairs the p value is exact, ties and zeros
    included: the distribution of ``W`` over all signs is built by convolution. For more pairs it is
    approximated as normal with ``variance = sum(rank^2) / 4`` and a continuity correction.

    Args:
        first: At least one result.
        second: Results of the same cases, in the same order.
        alternative: ``"greater"`` tests whether ``first`` is larger, ``"less"`` whether it is
            smaller.

    Returns:
        ``W`` and its p value, which is 1 if no pair differs.

    Raises:
        ValueError: If the shapes differ, there is no pair, or ``alternative`` is unknown.

    Example:
        >>> import jax.numpy as jnp
        >>> result = wilcoxon_test(jnp.arange(1.0, 6.0), jnp.zeros(5), alternative="greater")
        >>> float(result.p_value)
        0.03125

    Source: Wilcoxon, Individual comparisons by ranking methods, Biometrics Bulletin 1 (1945) 80.
    """
    difference, dtype = _differences(first, second, alternative)
    # Sums do not depend on the original order, so the signs are sorted together with the sizes.
    size, sign = sizes_and_signs(difference)
    zeros = jnp.sum(size == 0).astype(sign.dtype)
    ranks = jnp.where(size > 0, ranks_in_order(size, sign.dtype) - zeros, 0)
    # Half the sum of signed ranks is the distance of W from its mean; W minus the mean would
    # cancel.
    deviation = jnp.sum(sign * ranks) / 2
    statistic = jnp.sum(ranks) / 2 + deviation
    if difference.shape[0] <= _EXACT_PAIRS:
        upper, lower = _exact_tails(ranks, statistic)
    else:
        upper, lower = _normal_tails(ranks, deviation)
    p_value = _choose(alternative, upper, lower)
    p_value = jnp.where(jnp.any(jnp.isnan(difference)), jnp.nan, p_value)
    return narrow(PairedTest(statistic, p_value), dtype)


def _differences(first: ArrayLike, second: ArrayLike, alternative: str) -> tuple[Array, DTypeLike]:
    require_choice("alternative", alternative, ("two-sided", "greater", "less"))
    require_same_shape("first", first, "second", second)
    require_rank("first", first, 1, "pair")
    require_length("first", first, 1)
    dtype = jnp.result_type(floats(first), floats(second))
    return widen(first) - widen(second), dtype


def _choose(alternative: Alternative, upper: Array, lower: Array) -> Array:
    both = jnp.minimum(1, 2 * jnp.minimum(upper, lower))
    return {"two-sided": both, "greater": upper, "less": lower}[alternative]


def _exact_tails(ranks: Float[Array, " pair"], statistic: Array) -> tuple[Array, Array]:
    n = ranks.shape[0]
    probabilities = jnp.zeros(n * (n + 1) + 1, ranks.dtype).at[0].set(1)
    doubled = jnp.round(2 * ranks).astype(jnp.int32)
    probabilities, _ = jax.lax.scan(_add_pair, probabilities, doubled)
    sums = jnp.arange(probabilities.shape[0], dtype=jnp.int32)
    observed = jnp.round(2 * statistic).astype(jnp.int32)
    upper = jnp.sum(jnp.where(sums >= observed, probabilities, 0))
    lower = jnp.sum(jnp.where(sums <= observed, probabilities, 0))
    return jnp.minimum(upper, 1), jnp.minimum(lower, 1)


def _add_pair(probabilities: Array, doubled_rank: Array) -> tuple[Array, None]:
    return (probabilities + jnp.roll(probabilities, doubled_rank)) / 2, None


def _normal_tails(ranks: Float[Array, " pair"], deviation: Array) -> tuple[Array, Array]:
    scale = jnp.sqrt(jnp.sum(ranks**2)) / 2
    scale = jnp.where(scale > 0, scale, 1)
    upper = jax.scipy.special.ndtr(-(deviation - 0.5) / scale)
    lower = jax.scipy.special.ndtr((deviation + 0.5) / scale)
    return upper, lower


# A correction for testing several hypotheses together.


def holm(p_values: Float[ArrayLike, " test"]) -> Float[Array, " test"]:
    """Holm's step-down adjustment: reject where the adjusted value is at most ``alpha``.

    With the ``m`` values in increasing order, the ``i``-th becomes the largest of ``min(1, (m - j)
    p_j)`` over ``j <= i`` (counting from zero). The probability of any false rejection is then at
    most ``alpha``, whatever the dependence of the tests.

    Args:
        p_values: One per test; may be empty.

    Returns:
        Adjusted values in the original order. Under ``jit`` a value that is NaN or outside [0, 1]
        makes all of them NaN.

    Raises:
        ValueError: If there is not exactly one axis or a concrete value is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> [round(float(p), 3) for p in holm(jnp.array([0.01, 0.04, 0.03]))]
        [0.03, 0.06, 0.06]

    Source: Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of
    Statistics 6 (1979) 65.
    """
    p = _check(p_values)
    order = jnp.argsort(p)
    remaining = jnp.arange(p.shape[0], 0, -1).astype(p.dtype)
    stepped = jnp.minimum(jax.lax.cummax(p[order] * remaining), 1)
    adjusted = jnp.zeros_like(p).at[order].set(stepped)
    return jnp.where(jnp.all((p >= 0) & (p <= 1)), adjusted, jnp.nan)


def _check(p_values: ArrayLike) -> Float[Array, " test"]:
    require_rank("p_values", p_values, 1, "test")
    if is_concrete(p_values):
        values = np.asarray(p_values)
        if not np.all((values >= 0) & (values <= 1)):
            raise ValueError(
                f"p_values must be in [0, 1], got {values}; "
                "give probabilities, not percentages or test statistics"
            )
    return floats(p_values)
