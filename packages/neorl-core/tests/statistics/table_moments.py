import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.statistics import (
    empty_moments,
    merge_moments,
    normalised_score,
    sample_moments,
    update_moments,
    variance,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    flags,
    in_units,
    mapped,
    reals,
    rows,
)

DATA = in_units(rows(7, 2))
SAMPLE = st.tuples(DATA, flags(7))


def moments_of_the_kept(samples, mask):
    """What is left out by rounding is nothing to be compared."""
    kept = samples[mask]
    if not len(kept):
        zero = np.zeros(samples.shape[1:])
        return zero, zero, zero
    mean = kept.mean(axis=0)
    count = np.full(mean.shape, float(len(kept)))
    return count, mean, np.sum((kept - mean) ** 2, axis=0)


def at_once(samples, mask):
    return tuple(sample_moments(samples, mask)[:3])


def what_is_masked_may_be_anything(samples, mask):
    spoiled = np.where(mask[:, :, None], samples, np.nan).astype(np.float32)
    assert_close(mapped(at_once, spoiled, mask), mapped(at_once, samples, mask))


def order_does_not_matter(samples, mask):
    backwards = mapped(at_once, samples[:, ::-1], mask[:, ::-1])
    assert_close(backwards, mapped(at_once, samples, mask), atol=1e-5)


def update_after(samples, mask, sample, keep):
    return tuple(update_moments(sample_moments(samples, mask), sample, keep)[:3])


def updated_at_once(samples, mask, sample, keep):
    return moments_of_the_kept(np.vstack([samples, sample[None]]), np.append(mask, keep))


def an_update_is_a_merge_with_one(samples, mask, sample, keep):
    merged = mapped(merge_parts, samples, mask, sample[:, None], keep[:, None])
    assert_close(mapped(update_after, samples, mask, sample, keep), merged, atol=1e-5)


def merge_parts(first, first_mask, second, second_mask):
    parts = sample_moments(first, first_mask), sample_moments(second, second_mask)
    return tuple(merge_moments(*parts)[:3])


def merged_at_once(first, first_mask, second, second_mask):
    return moments_of_the_kept(np.vstack([first, second]), np.append(first_mask, second_mask))


def merging_commutes(first, first_mask, second, second_mask):
    assert_close(
        mapped(merge_parts, first, first_mask, second, second_mask),
        mapped(merge_parts, second, second_mask, first, first_mask),
        atol=1e-5,
    )


def merge_with_nothing(samples, mask):
    moments = sample_moments(samples, mask)
    nothing = empty_moments(moments.mean.shape, moments.mean.dtype)
    return tuple(merge_moments(merge_moments(nothing, moments), nothing)[:3])


def variance_of(samples, *, ddof):
    return variance(sample_moments(samples), ddof=ddof)


def scales_with_the_square(samples, *, ddof):
    assert_close(
        mapped(variance_of, 2 * samples, ddof=ddof), 4 * mapped(variance_of, samples, ddof=ddof)
    )


def by_hand(returns, *, low, high):
    return 100 * (returns - low) / (high - low)


def references_score_zero_and_hundred(returns, *, low, high):
    ends = np.broadcast_to(np.asarray([low, high], np.float32), (len(returns), 2))
    scores = mapped(normalised_score, ends, low=low, high=high)
    assert_close(scores, np.broadcast_to([0.0, 100.0], ends.shape), atol=1e-5)


FLOATS = ("float32", "float64")  # Moments never shrink: a short float cannot count.
ROWS = [
    Row(
        at_once,
        name="sample_moments",
        sample=SAMPLE,
        oracle=moments_of_the_kept,
        laws=[what_is_masked_may_be_anything, order_does_not_matter],
        edges=[
            Edge((np.zeros((0, 2)), np.zeros(0, bool))),
            Edge((np.full((7, 2), 100.0), np.ones(7, bool))),
        ],
        refuses=[
            Refusal("first axis", (jnp.ones(()), True)),
            Refusal("mask must have shape (3,)", (jnp.ones((3, 2)), jnp.ones((3, 2), bool))),
        ],
        dtypes=FLOATS,
    ),
    Row(
        update_after,
        name="update_moments",
        sample=in_units(st.tuples(rows(7, 2), flags(7), rows(2), flags())),
        oracle=updated_at_once,
        laws=[an_update_is_a_merge_with_one],
        edges=[Edge((np.zeros((0, 2)), np.zeros(0, bool), np.full(2, 1e3), np.asarray(True)))],
        refuses=[
            Refusal("shape (2,)", (jnp.ones((3, 2)), jnp.ones(3, bool), jnp.ones(3), True)),
            Refusal(
                "mask must be one number, got shape (2,); index it, or use jax.vmap for several",
                (jnp.ones((3, 2)), jnp.ones(3, bool), jnp.ones(2), jnp.ones(2, bool)),
            ),
        ],
        dtypes=FLOATS,
    ),
    Row(
        merge_parts,
        name="merge_moments",
        sample=in_units(st.tuples(rows(7, 2), flags(7), rows(3, 2), flags(3))),
        oracle=merged_at_once,
        laws=[merging_commutes],
        edges=[Edge((np.zeros((0, 2)), np.zeros(0, bool), np.zeros((0, 2)), np.zeros(0, bool)))],
        refuses=[
            Refusal(
                "one shape",
                (jnp.ones((3, 2)), jnp.ones(3, bool), jnp.ones((3, 1)), jnp.ones(3, bool)),
            ),
        ],
        dtypes=FLOATS,
    ),
    Row(
        merge_with_nothing,
        name="empty_moments",
        sample=SAMPLE,
        oracle=moments_of_the_kept,
        laws=[lambda *sample: assert_close(empty_moments()[:3], (0.0, 0.0, 0.0))],
        edges=[
            Edge((np.zeros((0, 2)), np.zeros(0, bool))),
            Edge((np.full((7, 2), 100.0), np.zeros(7, bool))),
            Edge((np.zeros((7, 0)), np.ones(7, bool))),
        ],
        dtypes=FLOATS,
    ),
    Row(
        variance_of,
        name="variance",
        sample=st.tuples(DATA),
        options=st.sampled_from([{"ddof": 0}, {"ddof": 1}]),
        oracle=lambda samples, *, ddof: np.var(samples, axis=0, ddof=ddof),
        laws=[scales_with_the_square],
        edges=[Edge((np.ones((2, 1)),), {"ddof": 1})],
        refuses=[Refusal("ddof", (jnp.ones(3),), {"ddof": -1})],
        dtypes=FLOATS,
    ),
    Row(
        normalised_score,
        sample=st.tuples(rows(7)),
        options=st.fixed_dictionaries(
            {"low": reals(-5, 1).map(float), "high": reals(2, 9).map(float)}
        ),
        oracle=by_hand,
        laws=[references_score_zero_and_hundred],
        edges=[Edge((np.zeros(0),), {"low": 0.0, "high": 1.0})],
        refuses=[
            Refusal("must differ", (1.0,), {"low": 2.0, "high": 2.0}),
            *(
                Refusal(
                    f"{end} must be one number, got shape (2, 1); "
                    "index it, or use jax.vmap for several",
                    (jnp.ones(2),),
                    {"low": 0.0, "high": 2.0, end: jnp.ones((2, 1))},
                )
                for end in ("low", "high")
            ),
        ],
    ),
]
