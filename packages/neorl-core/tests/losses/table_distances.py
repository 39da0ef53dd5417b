import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import special, stats
from scipy.spatial import distance

from neorl_core.losses import combo_regulariser, cross_entropy_loss, squared_mmd
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    finite_grad,
    flags,
    in_units,
    mapped,
    reals,
    rows,
    simplex,
)

BATCH, CHOICES = 3, 4
KERNELS = st.fixed_dictionaries(
    {"bandwidth": reals(0.5, 20), "kernel": st.sampled_from(["gaussian", "laplacian"])}
)
UNIT = reals(-1, 1)


def cross_entropy_by_scipy(logits, targets):
    return -np.sum(targets * special.log_softmax(logits, axis=-1), axis=-1)


def least_where_both_agree(logits, targets):
    at_best = np.asarray(mapped(cross_entropy_loss, np.log(targets), targets))
    assert_close(at_best, stats.entropy(targets, axis=-1), atol=1e-5)
    assert np.all(np.asarray(mapped(cross_entropy_loss, logits, targets)) >= at_best - 1e-4)


def the_slope_is_the_gap_of_probabilities(logits, targets):
    slope, _ = finite_grad(cross_entropy_loss, logits, targets)
    weights = 1 + np.cos(np.arange(BATCH))[:, None] / 2
    assert_close(slope, weights * (special.softmax(logits, axis=-1) - targets), atol=1e-5)


def what_is_not_asked_for_may_be_impossible(logits, targets):
    never = np.where(np.arange(CHOICES) == 1, np.float32(-np.inf), logits)
    kept = np.where(np.arange(CHOICES) == 1, np.float32(0), targets)
    rest = np.delete(never, 1, axis=-1), np.delete(kept, 1, axis=-1)
    assert_close(
        mapped(cross_entropy_loss, never, kept), mapped(cross_entropy_loss, *rest), atol=1e-5
    )
    finite_grad(cross_entropy_loss, never, kept)


def means_by_numpy(q_data, q_rollout, mask, rollout_mask):
    return (np.mean(q_rollout[rollout_mask]) if rollout_mask.any() else 0.0) - (
        np.mean(q_data[mask]) if mask.any() else 0.0
    )


def masked_rows_are_inert(q_data, q_rollout, mask, rollout_mask):
    wild = np.where(mask, q_data, np.nan), np.where(rollout_mask, q_rollout, np.nan)
    wild = [values.astype(np.float32) for values in wild]
    assert_close(
        mapped(combo_regulariser, *wild, mask, rollout_mask),
        mapped(combo_regulariser, q_data, q_rollout, mask, rollout_mask),
    )


def one_and_mmd(samples, logged, *, bandwidth, kernel="gaussian"):
    """In units of the kernel, of which equal samples leave nothing."""
    return 1 + squared_mmd(samples, logged, bandwidth=bandwidth, kernel=kernel)


def mmd_by_scipy(samples, logged, *, bandwidth, kernel):
    def mean(one, other):
        if kernel == "gaussian":
            gaps = distance.cdist(one, other, "sqeuclidean") / (2 * bandwidth)
        else:
            gaps = distance.cdist(one, other, "cityblock") / bandwidth
        return np.mean(np.exp(-gaps))

    return 1 + mean(samples, samples) - 2 * mean(samples, logged) + mean(logged, logged)


def symmetric_and_not_negative(samples, logged, **options):
    there = mapped(squared_mmd, samples, logged, **options)
    assert_close(mapped(squared_mmd, logged, samples, **options), there, atol=1e-6, scale=1.0)
    assert np.all(np.asarray(there) >= -1e-6)
    assert_close(
        mapped(squared_mmd, samples, samples, **options), np.zeros(3), atol=1e-6, scale=1.0
    )


ALL = np.ones(BATCH, bool)
PLAIN = {"bandwidth": 1.0, "kernel": "gaussian"}

ROWS = [
    Row(
        cross_entropy_loss,
        sample=st.tuples(rows(BATCH, CHOICES, elements=reals(-20, 20)), simplex(BATCH, CHOICES)),
        oracle=cross_entropy_by_scipy,
        laws=[
            least_where_both_agree,
            the_slope_is_the_gap_of_probabilities,
            what_is_not_asked_for_may_be_impossible,
        ],
        edges=[
            Edge((np.asarray([1e6, -1e6, 0.0]), np.asarray([1.0, 0.0, 0.0]))),
            Edge((np.zeros((0, 3)), np.zeros((0, 3)))),
        ],
        refuses=[
            Refusal("logits and targets must have one shape", (jnp.ones(2), jnp.ones(3))),
            Refusal("at least one choice", (jnp.ones(0), jnp.ones(0))),
        ],
    ),
    Row(
        combo_regulariser,
        sample=in_units(st.tuples(rows(BATCH), rows(CHOICES), flags(BATCH), flags(CHOICES))),
        oracle=means_by_numpy,
        laws=[masked_rows_are_inert],
        edges=[
            Edge((np.ones(BATCH), np.ones(BATCH), ~ALL, ~ALL)),
            Edge((np.full(BATCH, 1e30), np.full(BATCH, -1e30), ALL, ALL)),
        ],
        refuses=[
            Refusal("mask must be boolean", (jnp.ones(2), jnp.ones(2), jnp.ones(2))),
            Refusal(
                "x and mask must have one shape", (jnp.ones(2), jnp.ones(2), jnp.ones(3, bool))
            ),
        ],
    ),
    Row(
        one_and_mmd,
        name="squared_mmd",
        sample=st.tuples(rows(BATCH, 2, elements=UNIT), rows(CHOICES, 2, elements=UNIT)),
        options=KERNELS,
        oracle=mmd_by_scipy,
        laws=[symmetric_and_not_negative],
        edges=[
            Edge((np.zeros((2, 2)), np.zeros((3, 2))), PLAIN),
            Edge((np.full((2, 1), 1e6), np.zeros((3, 1))), {**PLAIN, "kernel": "laplacian"}),
        ],
        refuses=[
            Refusal("one action per row", (jnp.ones(2), jnp.ones((2, 1))), PLAIN),
            Refusal("equal channels", (jnp.ones((2, 2)), jnp.ones((2, 1))), PLAIN),
            Refusal("one row at least", (jnp.ones((0, 2)), jnp.ones((2, 2))), PLAIN),
            Refusal(
                "kernel must be one of gaussian, laplacian",
                (jnp.ones((2, 2)), jnp.ones((2, 2))),
                {"bandwidth": 1.0, "kernel": "cubic"},
            ),
            Refusal(
                "bandwidth must be finite and positive",
                (jnp.ones((2, 2)), jnp.ones((2, 2))),
                {"bandwidth": 0.0},
            ),
        ],
        atol=1e-6,
    ),
]
