import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import integrate, stats

from neorl_core.distributions import (
    diagonal_gaussian_sample,
    tanh_gaussian_latent_log_prob,
    tanh_gaussian_log_prob,
    tanh_gaussian_sample,
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


def log_slope(u):
    """``log(1 - tanh(u)^2)`` by ``4 / (exp(u) + exp(-u))^2``."""
    return np.log(4.0) - 2 * np.logaddexp(u, -u)


def latent_by_scipy(latent, mean, log_std):
    return np.sum(stats.norm.logpdf(latent, mean, np.exp(log_std)) - log_slope(latent))


def agrees_with_the_density_of_the_action(latent, mean, log_std):
    inside = np.clip(latent, -2, 2)
    assert_close(
        mapped(tanh_gaussian_log_prob, np.tanh(inside), mean, log_std),
        mapped(tanh_gaussian_latent_log_prob, inside, mean, log_std),
        rtol=1e-3,
        atol=1e-4,
    )


def squashed_by_scipy(action, mean, log_std, *, margin=1e-5):
    inside = np.clip(action, -1 + margin, 1 - margin)
    return latent_by_scipy(np.arctanh(inside), mean, log_std)


def integrates_to_one(action, mean, log_std):
    """Over (-1, 1), first channel, where the density is smooth enough for quadrature."""
    grid = np.linspace(-6, 6, 1201).astype(np.float32)
    centre, width = np.float32(np.clip(mean[0, 0], -1, 1)), np.float32(0.5)
    log_p = jax.jit(tanh_gaussian_latent_log_prob)(
        grid[:, None], np.full((1201, 1), centre), np.full((1201, 1), np.log(width))
    )
    # d action = (1 - tanh^2) d latent.
    mass = integrate.trapezoid(np.exp(np.asarray(log_p) + log_slope(grid)), grid)
    assert abs(mass - 1) < 1e-4


def draw_and_density_agree(mean, log_std, key):
    action, log_p = mapped(tanh_gaussian_sample, mean, log_std, key)
    latent = mapped(diagonal_gaussian_sample, mean, log_std, key)
    assert_close(action, np.tanh(latent))
    assert_close(log_p, mapped(tanh_gaussian_latent_log_prob, latent, mean, log_std))
    assert np.max(np.abs(action)) <= 1


RAW_KEY = np.zeros(2, np.uint32)
SAME = "; index or reshape one of them, nothing is broadcast here"
WIDE = (
    "log_std must broadcast against the shape (2,) of mean, got shape (3,); "
    "give one number, or one for each element"
)

ROWS = [
    Row(
        tanh_gaussian_latent_log_prob,
        sample=st.tuples(VALUE, VALUE, LOG_STD),
        oracle=latent_by_scipy,
        laws=[agrees_with_the_density_of_the_action],
        refuses=[
            Refusal(
                f"latent and mean must have one shape, got (2,) and (3,){SAME}",
                (jnp.zeros(2), jnp.zeros(3), jnp.zeros(3)),
            ),
            Refusal(WIDE, (jnp.zeros(2), jnp.zeros(2), jnp.zeros(3))),
        ],
        edges=[
            Edge((ZERO, ZERO, ZERO)),
            Edge((FAR, FAR, ZERO)),
            Edge((-FAR, -FAR, ZERO)),
            Edge((NOTHING, NOTHING, NOTHING)),
        ],
        **LOOSE,
    ),
    Row(
        tanh_gaussian_log_prob,
        sample=st.tuples(rows(CHANNELS, elements=reals(-0.875, 0.875)), VALUE, LOG_STD),
        oracle=squashed_by_scipy,
        laws=[integrates_to_one],
        edges=[
            Edge((ZERO, ZERO, ZERO)),
            Edge((np.ones(CHANNELS), ZERO, ZERO), {"margin": 0.25}),
            Edge((-np.ones(CHANNELS), FAR, ZERO), {"margin": 0.25}),
            Edge((NOTHING, NOTHING, NOTHING)),
        ],
        refuses=[
            Refusal("margin must be in (0, 1)", (jnp.zeros(2),) * 3, {"margin": 0.0}),
            Refusal(
                "margin must be one number, got shape (2, 1); "
                "index it, or use jax.vmap for several",
                (jnp.zeros(2),) * 3,
                {"margin": jnp.full((2, 1), 0.5)},
            ),
            Refusal(
                f"action and mean must have one shape, got (2,) and (3,){SAME}",
                (jnp.zeros(2), jnp.zeros(3), jnp.zeros(3)),
            ),
            Refusal(WIDE, (jnp.zeros(2), jnp.zeros(2), jnp.zeros(3))),
        ],
        rtol=1e-4,
        atol=1e-4,
    ),
    Row(
        tanh_gaussian_sample,
        sample=st.tuples(VALUE, LOG_STD, keys()),
        oracle=None,
        exempt=NOT_A_FORMULA,
        laws=[draw_and_density_agree],
        edges=[
            Edge((ZERO, ZERO, RAW_KEY)),
            Edge((FAR, ZERO, RAW_KEY)),
            Edge((-FAR, np.full(CHANNELS, -20.0), RAW_KEY)),
            Edge((NOTHING, NOTHING, RAW_KEY)),
        ],
        refuses=[Refusal(WIDE, (jnp.ones(2), jnp.ones(3), jax.random.key(0)))],
        **LOOSE,
    ),
]
