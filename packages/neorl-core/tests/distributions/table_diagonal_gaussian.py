import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import stats

from neorl_core.distributions import (
    diagonal_gaussian_entropy,
    diagonal_gaussian_log_prob,
    diagonal_gaussian_sample,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    keys,
    mapped,
    reals,
    rows,
)

CHANNELS = 2
VALUE = rows(CHANNELS, elements=reals(-5, 5))
LOG_STD = rows(CHANNELS, elements=reals(-3, 2))
ZERO, NOTHING = np.zeros(CHANNELS), np.zeros(0)
FAR = np.full(CHANNELS, 1e4)
NOT_A_FORMULA = {"oracle": "a draw; its distribution is tested in test_distributions.py"}
LOOSE = {"rtol": 1e-4, "atol": 1e-5}


def wide(name, mean, shape):
    """The refusal of a parameter that does not broadcast against a mean of two channels."""
    return (
        f"{name} must broadcast against the shape (2,) of {mean}, got shape {shape}; "
        "give one number, or one for each element"
    )


SCALAR = " needs a last axis of channels, got a scalar; for one channel give it shape (1,)"


def log_density_by_scipy(x, mean, log_std):
    return np.sum(stats.norm.logpdf(x, mean, np.exp(log_std)))


def only_the_difference_counts(x, mean, log_std):
    assert_close(
        mapped(diagonal_gaussian_log_prob, x - mean, np.zeros_like(mean), log_std),
        mapped(diagonal_gaussian_log_prob, x, mean, log_std),
        rtol=1e-4,
        scale=1000.0,
    )


def units_change_the_density_by_their_size(x, mean, log_std):
    wider = log_std + np.float32(np.log(4))
    assert_close(
        mapped(diagonal_gaussian_log_prob, 4 * x, 4 * mean, wider),
        mapped(diagonal_gaussian_log_prob, x, mean, log_std) - CHANNELS * np.log(4),
        rtol=1e-4,
        atol=1e-5,
    )


def sample_is_affine(mean, log_std, key):
    noise = mapped(diagonal_gaussian_sample, np.zeros_like(mean), np.zeros_like(mean), key)
    assert_close(
        mapped(diagonal_gaussian_sample, mean, log_std, key), mean + np.exp(log_std) * noise
    )


def entropy_by_scipy(log_std):
    return np.sum(stats.norm.entropy(scale=np.exp(log_std)))


def entropy_of_wider_is_larger(log_std):
    wider = mapped(diagonal_gaussian_entropy, log_std + 1)
    assert_close(wider, mapped(diagonal_gaussian_entropy, log_std) + CHANNELS)


RAW_KEY = np.zeros(2, np.uint32)

ROWS = [
    Row(
        diagonal_gaussian_log_prob,
        sample=st.tuples(VALUE, VALUE, LOG_STD),
        oracle=log_density_by_scipy,
        laws=[only_the_difference_counts, units_change_the_density_by_their_size],
        edges=[
            Edge((ZERO, ZERO, ZERO)),
            Edge((FAR, -FAR, ZERO)),
            Edge((ZERO, ZERO, np.full(CHANNELS, -20.0))),
            Edge((NOTHING, NOTHING, NOTHING)),
        ],
        refuses=[
            Refusal("x and mean must have one shape", (jnp.ones(3), jnp.ones(2), jnp.ones(2))),
            *(
                Refusal(wide("log_std", "mean", shape), (jnp.ones(2), jnp.ones(2), jnp.ones(shape)))
                for shape in ((3, 2), (3,))
            ),
            Refusal(f"mean{SCALAR}", (jnp.ones(()), jnp.ones(()), jnp.ones(2))),
        ],
        **LOOSE,
    ),
    Row(
        diagonal_gaussian_sample,
        sample=st.tuples(VALUE, LOG_STD, keys()),
        oracle=None,
        exempt=NOT_A_FORMULA,
        laws=[sample_is_affine],
        edges=[Edge((ZERO, np.full(CHANNELS, -80.0), RAW_KEY)), Edge((NOTHING, NOTHING, RAW_KEY))],
        refuses=[
            *(
                Refusal(
                    wide("log_std", "mean", shape),
                    (jnp.ones(2), jnp.ones(shape), jax.random.key(0)),
                )
                for shape in ((3, 2), (3,))
            ),
        ],
    ),
    Row(
        diagonal_gaussian_entropy,
        sample=st.tuples(LOG_STD),
        oracle=entropy_by_scipy,
        laws=[entropy_of_wider_is_larger],
        edges=[Edge((np.full(CHANNELS, -50.0),)), Edge((NOTHING,))],
        refuses=[Refusal(f"log_std{SCALAR}", (jnp.ones(()),))],
    ),
]
