import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import special, stats

from neorl_core.distributions import (
    diagonal_gaussian_log_prob,
    gaussian_mixture_log_prob,
    gaussian_mixture_mean,
    gaussian_mixture_mode,
    gaussian_mixture_sample,
)
from neorl_core.testing import Edge, Refusal, Row, assert_close, keys, mapped, reals, rows

COMPONENTS, CHANNELS = 3, 2
POINT = rows(CHANNELS, elements=reals(-5, 5))
LOGITS = rows(COMPONENTS, elements=reals(-5, 5))
MEAN = rows(COMPONENTS, CHANNELS, elements=reals(-5, 5))
LOG_STD = rows(COMPONENTS, CHANNELS, elements=reals(-2, 2))
LOOSE = {"rtol": 1e-4, "atol": 1e-5}


def log_density_by_scipy(x, logits, mean, log_std):
    inside = stats.norm.logpdf(x[..., None, :], mean, np.exp(log_std)).sum(axis=-1)
    return special.logsumexp(special.log_softmax(logits, axis=-1) + inside, axis=-1)


def one_component_is_a_gaussian(x, logits, mean, log_std):
    only = np.where(np.arange(COMPONENTS) == 1, logits, np.float32(-np.inf))
    assert_close(
        mapped(gaussian_mixture_log_prob, x, only, mean, log_std),
        mapped(diagonal_gaussian_log_prob, x, mean[:, 1], log_std[:, 1]),
        **LOOSE,
    )


def order_of_components_is_free(x, logits, mean, log_std):
    assert_close(
        mapped(gaussian_mixture_log_prob, x, logits[:, ::-1], mean[:, ::-1], log_std[:, ::-1]),
        mapped(gaussian_mixture_log_prob, x, logits, mean, log_std),
        **LOOSE,
    )


def without_spread_it_is_a_mean(logits, mean, log_std, key):
    drawn = np.asarray(
        mapped(gaussian_mixture_sample, logits, mean, np.full_like(log_std, -60.0), key)
    )
    gaps = np.abs(mean - drawn[:, None]).max(axis=-1).min(axis=-1)
    assert np.all(gaps < 1e-6)


def weighted_sum(logits, mean):
    return special.softmax(logits) @ mean


def a_shift_shifts(logits, mean):
    assert_close(
        mapped(gaussian_mixture_mean, logits, mean + 8),
        mapped(gaussian_mixture_mean, logits, mean) + 8,
        atol=1e-5,
    )


def densest_mean(logits, mean, log_std):
    densities = [log_density_by_scipy(point, logits, mean, log_std) for point in mean]
    return mean[int(np.argmax(densities))]


def no_mean_is_denser(logits, mean, log_std):
    best = mapped(gaussian_mixture_mode, logits, mean, log_std)
    at_best = mapped(gaussian_mixture_log_prob, best, logits, mean, log_std)
    for k in range(COMPONENTS):
        other = mapped(gaussian_mixture_log_prob, mean[:, k], logits, mean, log_std)
        assert np.all(np.asarray(at_best) >= np.asarray(other) - 1e-4)


# Means so far apart that which of them is densest does not hang on rounding.
APART = st.permutations([-40.0, 0.0, 40.0]).map(
    lambda places: np.broadcast_to(np.float32(places)[None, :, None], (3, COMPONENTS, CHANNELS))
)
WEIGHTS = st.permutations([-2.0, 0.0, 1.0]).map(lambda w: np.stack([np.float32(w)] * 3))
NARROW = np.full((COMPONENTS, CHANNELS), -20.0)
ZEROS, MEANS = np.zeros(COMPONENTS), np.zeros((COMPONENTS, CHANNELS))
POINTS = np.zeros(CHANNELS)
RAW_KEY = np.zeros(2, np.uint32)
COMPONENT = "give one mean for each component"

ROWS = [
    Row(
        gaussian_mixture_log_prob,
        sample=st.tuples(POINT, LOGITS, MEAN, LOG_STD),
        oracle=log_density_by_scipy,
        laws=[one_component_is_a_gaussian, order_of_components_is_free],
        edges=[
            Edge((POINTS, ZEROS, MEANS, MEANS)),
            Edge((POINTS, np.asarray([0.0, -np.inf, 1.0]), MEANS, MEANS)),
            Edge((POINTS, ZEROS, MEANS + 1e4, MEANS)),
            Edge((POINTS, ZEROS, MEANS, NARROW)),
            Edge(
                (np.zeros((2, CHANNELS)), np.zeros((2, 1)), np.zeros((2, 1, CHANNELS)), MEANS[:1])
            ),
        ],
        refuses=[
            Refusal(COMPONENT, (POINTS, jnp.ones(2), MEANS, MEANS)),
            Refusal(COMPONENT, (POINTS, jnp.ones(0), jnp.ones((0, 2)), jnp.ones((0, 2)))),
            Refusal("give one point for each mixture", (jnp.ones(3), ZEROS, MEANS, MEANS)),
        ],
        **LOOSE,
    ),
    Row(
        gaussian_mixture_sample,
        sample=st.tuples(LOGITS, MEAN, LOG_STD, keys()),
        oracle=None,
        exempt={
            "oracle": "a draw; its distribution is tested in test_distributions_on_a_box.py",
            "batch": "NaN logits still choose a component",
        },
        laws=[without_spread_it_is_a_mean],
        edges=[Edge((ZEROS, MEANS, MEANS, RAW_KEY))],
        refuses=[Refusal(COMPONENT, (jnp.ones(2), MEANS, MEANS, jax.random.key(0)))],
    ),
    Row(
        gaussian_mixture_mean,
        sample=st.tuples(LOGITS, MEAN),
        oracle=weighted_sum,
        laws=[a_shift_shifts],
        edges=[Edge((ZEROS, MEANS))],
        refuses=[Refusal(COMPONENT, (jnp.ones(2), MEANS))],
        atol=1e-5,
    ),
    Row(
        gaussian_mixture_mode,
        sample=st.tuples(WEIGHTS, APART, LOG_STD.map(lambda s: 0 * s)),
        oracle=densest_mean,
        laws=[no_mean_is_denser],
        exempt={"batch": "NaN densities still choose a component"},
        edges=[Edge((ZEROS, MEANS, MEANS))],
        refuses=[Refusal(COMPONENT, (jnp.ones(2), MEANS, MEANS))],
    ),
]
