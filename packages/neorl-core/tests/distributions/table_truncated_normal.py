import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import special, stats

from neorl_core.distributions import (
    truncated_normal_entropy,
    truncated_normal_log_prob,
    truncated_normal_mean,
    truncated_normal_mode,
    truncated_normal_sample,
)
from neorl_core.testing import Edge, Refusal, Row, assert_close, keys, mapped, reals, rows

CHANNELS = 2
POINT = rows(CHANNELS, elements=reals(-1, 1))
VALUE = rows(CHANNELS, elements=reals(-3, 3))
LOG_STD = rows(CHANNELS, elements=reals(-1.5, 4))
BOX = st.sampled_from([{"low": -1.0, "high": 1.0}, {"low": -1.5, "high": 4.0}])
PLAIN = {"low": -1.0, "high": 1.0}
NODES, WEIGHTS = np.polynomial.legendre.leggauss(400)


def log_density_by_scipy(x, mean, log_std, *, low, high):
    std = np.exp(log_std)
    ends = (low - mean) / std, (high - mean) / std
    return np.sum(stats.truncnorm.logpdf(x, *ends, mean, std))


def quadrature(mean, log_std, low, high):
    """Nodes in the box, and the probabilities that the cut Gaussian gives them; last axis both."""
    at = low + (high - low) * (1 + NODES) / 2
    z = (at - mean[:, None]) / np.exp(log_std)[:, None]
    exponent = -(z**2) / 2
    share = WEIGHTS * np.exp(exponent - exponent.max(axis=-1, keepdims=True))
    return at, share / share.sum(axis=-1, keepdims=True), WEIGHTS * (high - low) / 2


def mirrored(x, mean, log_std, *, low, high):
    assert_close(
        mapped(truncated_normal_log_prob, -x, -mean, log_std, low=-high, high=-low),
        mapped(truncated_normal_log_prob, x, mean, log_std, low=low, high=high),
    )


def outside_it_is_nan(x, mean, log_std, *, low, high):
    beyond = np.full_like(x, high + 1)
    result = mapped(truncated_normal_log_prob, beyond, mean, log_std, low=low, high=high)
    assert np.isnan(result).all()


def entropy_by_quadrature(mean, log_std, *, low, high):
    """SciPy's own entropy cancels where the box is narrow."""
    _, share, width = quadrature(mean, log_std, low, high)
    with np.errstate(divide="ignore"):
        return -np.sum(special.xlogy(share, share / width))


def at_most_uniform(mean, log_std, *, low, high):
    entropy = np.asarray(mapped(truncated_normal_entropy, mean, log_std, low=low, high=high))
    assert np.all(entropy <= CHANNELS * np.log(high - low) + 1e-5)


def eight_and_mean(mean, log_std, *, low=-1.0, high=1.0):
    """Away from zero, near which a mean has the rounding of the box."""
    return 8 + truncated_normal_mean(mean, log_std, low=low, high=high)


def mean_by_quadrature(mean, log_std, *, low, high):
    at, share, _ = quadrature(mean, log_std, low, high)
    return 8 + share @ at


def mirrored_mean(mean, log_std, *, low, high):
    there = mapped(truncated_normal_mean, -mean, log_std, low=-high, high=-low)
    here = mapped(truncated_normal_mean, mean, log_std, low=low, high=high)
    assert_close(there, -here, atol=1e-6, scale=1.0)


def clipped(mean, *, low, high):
    return np.clip(mean, low, high)


def densest_there(mean, *, low, high):
    mode = np.asarray(mapped(truncated_normal_mode, mean, low=low, high=high))
    width = np.zeros_like(mean)
    at_mode = mapped(truncated_normal_log_prob, mode, mean, width, low=low, high=high)
    middle = np.full_like(mean, (low + high) / 2)
    off = mapped(truncated_normal_log_prob, middle, mean, width, low=low, high=high)
    assert np.all(np.asarray(at_mode) >= np.asarray(off) - 1e-5)


def stays_in_the_box(mean, log_std, key, *, low, high):
    drawn = np.asarray(mapped(truncated_normal_sample, mean, log_std, key, low=low, high=high))
    assert np.all((drawn >= low) & (drawn <= high))


ZERO, NOTHING, FAR = np.zeros(CHANNELS), np.zeros(0), np.full(CHANNELS, 1e4)
TAIL = np.asarray([-40.0, 25.0])
RAW_KEY = np.zeros(2, np.uint32)
KEY = jax.random.key(0)
WIDE = [
    Refusal("log_std must broadcast against the shape (2,) of mean", (jnp.ones(2), jnp.ones(3))),
    Refusal("low must be below high", (jnp.ones(2), jnp.ones(2)), {"low": 1.0, "high": 1.0}),
    Refusal("high must broadcast", (jnp.ones(2), jnp.ones(2)), {"high": jnp.ones(3)}),
]

ROWS = [
    Row(
        truncated_normal_log_prob,
        sample=st.tuples(POINT, VALUE, LOG_STD),
        options=BOX,
        oracle=log_density_by_scipy,
        laws=[mirrored, outside_it_is_nan],
        edges=[
            Edge((ZERO, ZERO, ZERO), PLAIN),
            Edge((np.asarray([-1.0, 1.0]), TAIL, ZERO), PLAIN),
            Edge((np.asarray([-0.9, 0.9]), TAIL, ZERO), PLAIN),
            Edge((ZERO, ZERO, np.full(CHANNELS, 20.0)), PLAIN),
            Edge(
                (np.asarray([1.0, -1.0]), np.asarray([1.0, -1.0]), np.full(CHANNELS, -9.0)), PLAIN
            ),
            Edge((np.ones(CHANNELS), np.ones(CHANNELS), ZERO), PLAIN),
            Edge((NOTHING, NOTHING, NOTHING), PLAIN),
        ],
        refuses=[
            Refusal("x and mean must have one shape", (jnp.ones(3), jnp.ones(2), jnp.ones(2))),
            Refusal("low must be below high", (jnp.ones(2),) * 3, {"low": 1.0, "high": 0.0}),
        ],
        rtol=1e-4,
        atol=1e-5,
    ),
    Row(
        truncated_normal_sample,
        sample=st.tuples(VALUE, LOG_STD, keys()),
        options=BOX,
        oracle=None,
        exempt={"oracle": "a draw; its distribution is tested in test_distributions_on_a_box.py"},
        laws=[stays_in_the_box],
        edges=[
            Edge((ZERO, ZERO, RAW_KEY), PLAIN),
            Edge((TAIL, ZERO, RAW_KEY), PLAIN),
            Edge((FAR, ZERO, RAW_KEY), PLAIN),
            Edge((FAR, np.full(CHANNELS, 20.0), RAW_KEY), PLAIN),
            Edge((ZERO, np.full(CHANNELS, -20.0), RAW_KEY), PLAIN),
            Edge((NOTHING, NOTHING, RAW_KEY), PLAIN),
        ],
        refuses=[
            Refusal("low must be below high", (jnp.ones(2), jnp.ones(2), KEY), {"low": 1.0}),
        ],
    ),
    Row(
        truncated_normal_entropy,
        sample=st.tuples(VALUE, LOG_STD),
        options=BOX,
        oracle=entropy_by_quadrature,
        laws=[at_most_uniform],
        edges=[
            Edge((ZERO, ZERO), PLAIN),
            Edge((TAIL, ZERO), PLAIN),
            Edge((ZERO, np.full(CHANNELS, 15.0)), PLAIN),
            Edge((NOTHING, NOTHING), PLAIN),
        ],
        refuses=WIDE,
        rtol=1e-4,
        atol=2e-5,
    ),
    Row(
        eight_and_mean,
        name="truncated_normal_mean",
        sample=st.tuples(VALUE, LOG_STD),
        options=BOX,
        oracle=mean_by_quadrature,
        laws=[mirrored_mean],
        edges=[
            Edge((ZERO, ZERO), PLAIN),
            Edge((TAIL, ZERO), PLAIN),
            Edge((ZERO, np.full(CHANNELS, 15.0)), PLAIN),
        ],
        refuses=WIDE,
        rtol=1e-4,
    ),
    Row(
        truncated_normal_mode,
        sample=st.tuples(VALUE),
        options=BOX,
        oracle=clipped,
        laws=[densest_there],
        edges=[Edge((np.asarray([-1.0, 1.0]),), PLAIN), Edge((NOTHING,), PLAIN)],
        refuses=[Refusal("low must be below high", (jnp.ones(2),), {"low": 1.0, "high": 1.0})],
    ),
]
