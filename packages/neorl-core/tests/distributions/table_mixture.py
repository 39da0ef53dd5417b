import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import special, stats

from neorl_core.distributions import (
    diagonal_gaussian_log_prob,
    gaussian_mixture_log_prob,
)
from neorl_core.testing import Edge, Refusal, Row, assert_close, mapped, reals, rows

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


NARROW = np.full((COMPONENTS, CHANNELS), -20.0)
ZEROS, MEANS = np.zeros(COMPONENTS), np.zeros((COMPONENTS, CHANNELS))
POINTS = np.zeros(CHANNELS)
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
]
