"""Tests of whether paired results differ, from the strongest assumptions to the weakest."""

import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, DTypeLike, Float, PRNGKeyArray

from neorl_core._internal.checks import (
    checked_integer,
    floats,
    require_choice,
    require_key,
    require_length,
    require_rank,
    require_same_shape,
)
from neorl_core._internal.float_widths import narrowed, widened
from neorl_core._internal.resampling import in_blocks
from neorl_core._internal.sorting import sizes_and_signs
from neorl_core.statistics._intervals import standard_deviation
from neorl_core.statistics._ranks import ranks_in_order
from neorl_core.statistics._student import student_upper_tail

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


def paired_t_test(
    first: Float[ArrayLike, " pair"],
    second: Float[ArrayLike, " pair"],
    *,
    alternative: Alternative = "two-sided",
) -> PairedTest:
    """Student's test of the mean difference: exact for normal differences.

    Args:
        first: At least two results.
        second: Results of the same cases, in the same order.
        alternative: ``"greater"`` tests whether ``first`` is larger, ``"less"`` whether it is
            smaller.

    Returns:
        ``t = mean(d) sqrt(n) / s`` and its p value. NaN if all differences are zero; the p value is
        0 or 1 if they are all equal otherwise.

    Raises:
        ValueError: If the shapes differ, there are fewer than two pairs, or ``alternative`` is
            unknown.

    Example:
        >>> import jax.numpy as jnp
        >>> result = paired_t_test(jnp.array([2.0, 3.0, 4.1]), jnp.array([1.0, 2.1, 3.0]))
        >>> bool(result.p_value < 0.01)
        True

    Source: Student, The probable error of a mean, Biometrika 6 (1908) 1.
    """
    difference, dtype = _differences(first, second, alternative)
    require_length("first", difference, 2)
    n = difference.shape[0]
    t = jnp.mean(difference) * n**0.5 / standard_deviation(difference)
    degrees = jnp.asarray(n - 1, t.dtype)
    # Each side from its own tail: one minus the other would lose the digits of a small p value.
    upper, lower = student_upper_tail(t, degrees), student_upper_tail(-t, degrees)
    return narrowed(PairedTest(t, _choose(alternative, upper, lower)), dtype)


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
    return narrowed(PairedTest(statistic, p_value), dtype)


def sign_flip_test(
    first: Float[ArrayLike, " pair"],
    second: Float[ArrayLike, " pair"],
    key: PRNGKeyArray,
    *,
    alternative: Alternative = "two-sided",
    resamples: int = 4000,
) -> PairedTest:
    """Permutation test of the mean difference, which swaps the two results of random pairs.

    If the pairs do not differ, every sign pattern of the differences is equally likely. If the
    number of patterns, ``2^n``, does not exceed ``resamples``, all are counted and the key is not
    used. Otherwise ``resamples`` patterns are sampled and ``p = (1 + count) / (1 + resamples)``,
    which keeps the level of the test for any number of samples.

    Args:
        first: At least one result.
        second: Results of the same cases, in the same order.
        key: Random key.
        alternative: ``"greater"`` tests whether ``first`` is larger, ``"less"`` whether it is
            smaller.
        resamples: Number of sign patterns.

    Returns:
        The mean difference and its p value.

    Raises:
        ValueError: If the shapes differ, there is no pair, ``resamples`` is not a positive integer,
            or ``alternative`` is unknown.
        TypeError: If patterns are sampled and ``key`` is not a random key.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> result = sign_flip_test(jnp.arange(1.0, 5.0), jnp.zeros(4), jax.random.key(0))
        >>> float(result.p_value)
        0.125

    Source: Fisher, The design of experiments, 1935; the added one as in Phipson and Smyth,
    Permutation p-values should never be zero, 2010.
    """
    difference, dtype = _differences(first, second, alternative)
    resamples = checked_integer("resamples", resamples, 1, "give the number of sign patterns")
    n = difference.shape[0]
    every = n < resamples.bit_length()  # at most ``resamples`` patterns
    if not every:
        require_key(key)
    observed = jnp.sum(difference)
    # The sum of a pattern is the observed one minus twice the differences that it flips.
    flipped = _every_flip(difference) if every else _drawn_flips(difference, key, resamples)
    slack = 4 * jnp.finfo(difference.dtype).eps * jnp.sum(jnp.abs(difference))
    extra = 0 if every else 1
    total = flipped.shape[0] + extra
    upper = (jnp.sum(flipped <= slack) + extra).astype(difference.dtype) / total
    lower = (jnp.sum(flipped >= -slack) + extra).astype(difference.dtype) / total
    p_value = _choose(alternative, upper, lower)
    p_value = jnp.where(jnp.isnan(observed), jnp.nan, p_value)
    return narrowed(PairedTest(observed / n, p_value), dtype)


def _every_flip(difference: Float[Array, " pair"]) -> Float[Array, " pattern"]:
    """The sum of the flipped differences of every possible pattern."""
    n = difference.shape[0]
    shifts = jnp.arange(n, dtype=jnp.uint32)[None, :]
    bits = jnp.arange(2**n, dtype=jnp.uint32)[:, None] >> shifts
    return jnp.sum(jnp.where((bits & 1) == 1, difference[None, :], 0), axis=1)


@functools.partial(jax.jit, static_argnames="resamples")
def _drawn_flips(
    difference: Float[Array, " pair"], key: Array, resamples: int
) -> Float[Array, " pattern"]:
    """The sum of the flipped differences of random patterns; a random word holds 32 signs."""
    n = difference.shape[0]
    n_words = -(-n // 32)
    padded = jnp.pad(difference, (0, 32 * n_words - n)).reshape(n_words, 32)
    shifts = jnp.arange(32, dtype=jnp.uint32)[None, :]

    def one(key: Array) -> Array:
        bits = jax.random.bits(key, (n_words, 1), jnp.uint32) >> shifts
        return jnp.sum(jnp.where((bits & 1) == 1, padded, 0))

    return in_blocks(one, jax.random.split(key, resamples), 32 * n_words)


def _differences(first: ArrayLike, second: ArrayLike, alternative: str) -> tuple[Array, DTypeLike]:
    require_choice("alternative", alternative, ("two-sided", "greater", "less"))
    require_same_shape("first", first, "second", second)
    require_rank("first", first, 1, "pair")
    require_length("first", first, 1)
    dtype = jnp.result_type(floats(first), floats(second))
    return widened(first) - widened(second), dtype


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
