import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import integrate, special, stats

from neorl_core import (
    categorical_entropy,
    categorical_kl,
    categorical_log_probability,
    categorical_mode,
    categorical_sample,
    diagonal_gaussian_entropy,
    diagonal_gaussian_kl,
    diagonal_gaussian_log_density,
    diagonal_gaussian_mode,
    diagonal_gaussian_sample,
    tanh_gaussian_entropy,
    tanh_gaussian_kl,
    tanh_gaussian_latent_log_density,
    tanh_gaussian_log_density,
    tanh_gaussian_mode,
    tanh_gaussian_sample,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    finite_grad,
    integers,
    keys,
    mapped,
    reals,
    rows,
)

CHANNELS, CHOICES = 2, 4
VALUE = rows(CHANNELS, elements=reals(-5, 5))
LOG_STD = rows(CHANNELS, elements=reals(-3, 2))
LOGITS = rows(CHOICES, elements=reals(-20, 20))
GAUSSIAN = st.tuples(VALUE, LOG_STD)
NOT_A_FORMULA = {"oracle": "a draw; its distribution is tested in test_distributions.py"}


# The diagonal Gaussian.


def log_density_by_scipy(x, mean, log_std):
    return np.sum(stats.norm.logpdf(x, mean, np.exp(log_std)))


def only_the_difference_counts(x, mean, log_std):
    assert_close(
        mapped(diagonal_gaussian_log_density, x - mean, np.zeros_like(mean), log_std),
        mapped(diagonal_gaussian_log_density, x, mean, log_std),
        rtol=1e-4,
        scale=1000.0,
    )


def units_change_the_density_by_their_size(x, mean, log_std):
    wider = log_std + np.float32(np.log(4))
    assert_close(
        mapped(diagonal_gaussian_log_density, 4 * x, 4 * mean, wider),
        mapped(diagonal_gaussian_log_density, x, mean, log_std) - CHANNELS * np.log(4),
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


def kl_in_closed_form(mean, log_std, other_mean, other_log_std):
    variance, other = np.exp(2 * log_std), np.exp(2 * other_log_std)
    return np.sum(
        (variance + (mean - other_mean) ** 2) / (2 * other) - 0.5 + other_log_std - log_std
    )


def zero_only_to_itself(mean, log_std, other_mean, other_log_std):
    for function in (diagonal_gaussian_kl, tanh_gaussian_kl):
        assert_close(mapped(function, mean, log_std, mean, log_std), np.zeros(3))
        assert np.min(mapped(function, mean, log_std, other_mean, other_log_std)) >= 0


def kl_is_expected_log_ratio(mean, log_std, other_mean, other_log_std):
    """Gauss-Hermite quadrature of ``log p - log q`` under ``p``, which is a parabola: exact."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)
    total = np.zeros(3)
    for node, weight in zip(nodes, weights / np.sqrt(2 * np.pi), strict=True):
        x = mean.astype(np.float64) + np.exp(log_std) * node
        ratio = stats.norm.logpdf(x, mean, np.exp(log_std))
        ratio = ratio - stats.norm.logpdf(x, other_mean, np.exp(other_log_std))
        total += weight * ratio.sum(axis=-1)
    result = mapped(diagonal_gaussian_kl, mean, log_std, other_mean, other_log_std)
    assert_close(result, total, rtol=1e-4, atol=1e-5)


def the_mean_itself(mean):
    return mean


def densest_at_the_mode(mean):
    width = np.zeros_like(mean)
    best = mapped(diagonal_gaussian_mode, mean)
    at_best = mapped(diagonal_gaussian_log_density, best, mean, width)
    off = mapped(diagonal_gaussian_log_density, best + np.float32(0.125), mean, width)
    assert np.all(np.asarray(at_best) > np.asarray(off))


# The Gaussian squashed by tanh.


def log_slope(u):
    """``log(1 - tanh(u)^2)`` by ``4 / (exp(u) + exp(-u))^2``."""
    return np.log(4.0) - 2 * np.logaddexp(u, -u)


def latent_by_scipy(latent, mean, log_std):
    return np.sum(stats.norm.logpdf(latent, mean, np.exp(log_std)) - log_slope(latent))


def agrees_with_the_density_of_the_action(latent, mean, log_std):
    inside = np.clip(latent, -2, 2)
    assert_close(
        mapped(tanh_gaussian_log_density, np.tanh(inside), mean, log_std),
        mapped(tanh_gaussian_latent_log_density, inside, mean, log_std),
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
    log_p = jax.jit(tanh_gaussian_latent_log_density)(
        grid[:, None], np.full((1201, 1), centre), np.full((1201, 1), np.log(width))
    )
    # d action = (1 - tanh^2) d latent.
    mass = integrate.trapezoid(np.exp(np.asarray(log_p) + log_slope(grid)), grid)
    assert abs(mass - 1) < 1e-4


def draw_and_density_agree(mean, log_std, key):
    action, log_p = mapped(tanh_gaussian_sample, mean, log_std, key)
    latent = mapped(diagonal_gaussian_sample, mean, log_std, key)
    assert_close(action, np.tanh(latent))
    assert_close(log_p, mapped(tanh_gaussian_latent_log_density, latent, mean, log_std))
    assert np.max(np.abs(action)) <= 1


def entropy_by_quadrature(mean, log_std):
    """By fine trapezoids in units of the standard deviation."""
    grid = np.linspace(-12, 12, 8001)
    total = 0.0
    for centre, width in zip(mean, np.exp(log_std), strict=True):
        density = np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi)
        slope = integrate.trapezoid(density * log_slope(centre + width * grid), grid)
        total += stats.norm.entropy(scale=width) + slope
    return total


def mirrored_and_bounded(mean, log_std):
    entropy = mapped(tanh_gaussian_entropy, mean, log_std)
    assert_close(mapped(tanh_gaussian_entropy, -mean, log_std), entropy, atol=1e-5)
    assert np.max(entropy) <= CHANNELS * np.log(2) + 1e-4


def squashed_median(mean):
    return np.tanh(mean)


def half_the_mass_is_below(mean):
    mode = np.asarray(mapped(tanh_gaussian_mode, mean))
    assert np.all(np.abs(mode) <= 1)
    assert_close(mapped(tanh_gaussian_mode, -mean), -mode)


# The categorical distribution.


def log_p_by_scipy(index, logits):
    return logits[index] - special.logsumexp(logits)


def probabilities_sum_to_one(index, logits):
    choices = [np.full_like(index, choice) for choice in range(CHOICES)]
    log_p = [np.asarray(mapped(categorical_log_probability, c, logits)) for c in choices]
    assert_close(np.exp(log_p).sum(axis=0), np.ones(3))


def a_shift_of_all_logits_changes_nothing(index, logits):
    assert_close(
        mapped(categorical_log_probability, index, logits + 8),
        mapped(categorical_log_probability, index, logits),
        atol=1e-5,
    )


def draws_only_what_is_possible(logits, key):
    only = np.full_like(logits, -np.inf)
    only[:, 2] = logits[:, 2]
    assert np.all(np.asarray(mapped(categorical_sample, only, key)) == 2)
    drawn = np.asarray(mapped(categorical_sample, logits, key))
    assert np.all((drawn >= 0) & (drawn < CHOICES))


def choice_entropy_by_scipy(logits):
    return stats.entropy(special.softmax(logits))


def at_most_uniform(logits):
    entropy = np.asarray(mapped(categorical_entropy, logits))
    assert np.all(entropy <= np.log(CHOICES) + 1e-5)
    assert np.all(entropy >= -1e-6)


def what_cannot_occur_adds_nothing(logits):
    padded = np.concatenate([logits, np.full_like(logits[:, :1], -np.inf)], axis=1)
    assert_close(mapped(categorical_entropy, padded), mapped(categorical_entropy, logits))
    finite_grad(categorical_entropy, padded)


def choice_kl_by_scipy(logits, other_logits):
    p, q = special.log_softmax(logits), special.log_softmax(other_logits)
    return np.sum(special.rel_entr(np.exp(p), np.exp(q)))


def cross_entropy_less_entropy(logits, other_logits):
    kl = np.asarray(mapped(categorical_kl, logits, other_logits))
    p = special.softmax(logits.astype(np.float64), axis=-1)
    cross = -np.sum(p * special.log_softmax(other_logits.astype(np.float64), axis=-1), axis=-1)
    assert_close(kl, cross - stats.entropy(p, axis=-1), atol=1e-5)
    assert_close(mapped(categorical_kl, logits, logits), np.zeros(3))


def first_of_the_largest(logits):
    return np.int64(np.argmax(logits))


def most_probable(logits):
    mode = np.asarray(mapped(categorical_mode, logits))
    best = mapped(categorical_log_probability, mode, logits)
    for choice in range(CHOICES):
        other = mapped(categorical_log_probability, np.full_like(mode, choice), logits)
        assert np.all(np.asarray(best) >= np.asarray(other))


ZERO, NOTHING = np.zeros(CHANNELS), np.zeros(0)
FAR = np.full(CHANNELS, 1e4)
WRONG = Refusal("broadcast", (jnp.ones(2), jnp.ones(3)))
NO_CHOICE = Refusal("at least one choice", (jnp.ones(0),))
LOOSE = {"rtol": 1e-4, "atol": 1e-5}

ROWS = [
    Row(
        diagonal_gaussian_log_density,
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
            Refusal("one shape", (jnp.ones(3), jnp.ones(2), jnp.ones(2))),
            Refusal("broadcast", (jnp.ones(2), jnp.ones(2), jnp.ones((3, 2)))),
        ],
        **LOOSE,
    ),
    Row(
        diagonal_gaussian_sample,
        sample=st.tuples(VALUE, LOG_STD, keys()),
        oracle=None,
        exempt=NOT_A_FORMULA,
        laws=[sample_is_affine],
        refuses=[
            Refusal("broadcast", (jnp.ones(2), jnp.ones((3, 2)), jax.random.key(0))),
        ],
    ),
    Row(
        diagonal_gaussian_entropy,
        sample=st.tuples(LOG_STD),
        oracle=entropy_by_scipy,
        laws=[entropy_of_wider_is_larger],
        edges=[Edge((np.full(CHANNELS, -50.0),)), Edge((NOTHING,))],
    ),
    Row(
        diagonal_gaussian_kl,
        sample=st.tuples(VALUE, LOG_STD, VALUE, LOG_STD),
        oracle=kl_in_closed_form,
        laws=[zero_only_to_itself, kl_is_expected_log_ratio],
        edges=[
            Edge((ZERO, ZERO, ZERO, ZERO)),
            Edge((ZERO, np.full(CHANNELS, -15.0), FAR, ZERO)),
            Edge((NOTHING,) * 4),
        ],
        refuses=[
            Refusal("one shape", (jnp.ones(2), jnp.ones(2), jnp.ones(3), jnp.ones(3))),
            Refusal("broadcast", (jnp.ones(2), jnp.ones((3, 2)), jnp.ones(2), jnp.ones(2))),
        ],
        **LOOSE,
    ),
    Row(
        diagonal_gaussian_mode,
        sample=st.tuples(VALUE),
        oracle=the_mean_itself,
        laws=[densest_at_the_mode],
        edges=[Edge((NOTHING,))],
    ),
    Row(
        tanh_gaussian_latent_log_density,
        sample=st.tuples(VALUE, VALUE, LOG_STD),
        oracle=latent_by_scipy,
        laws=[agrees_with_the_density_of_the_action],
        edges=[
            Edge((ZERO, ZERO, ZERO)),
            Edge((FAR, FAR, ZERO)),
            Edge((-FAR, -FAR, ZERO)),
            Edge((NOTHING, NOTHING, NOTHING)),
        ],
        **LOOSE,
    ),
    Row(
        tanh_gaussian_log_density,
        sample=st.tuples(rows(CHANNELS, elements=reals(-0.875, 0.875)), VALUE, LOG_STD),
        oracle=squashed_by_scipy,
        laws=[integrates_to_one],
        edges=[
            Edge((ZERO, ZERO, ZERO)),
            Edge((np.ones(CHANNELS), ZERO, ZERO), {"margin": 0.25}),
            Edge((-np.ones(CHANNELS), FAR, ZERO), {"margin": 0.25}),
        ],
        refuses=[
            Refusal("margin must be in (0, 1)", (jnp.zeros(2),) * 3, {"margin": 0.0}),
            Refusal("one shape", (jnp.zeros(2), jnp.zeros(3), jnp.zeros(3))),
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
        refuses=[Refusal("broadcast", (jnp.ones(2), jnp.ones((3, 2)), jax.random.key(0)))],
        **LOOSE,
    ),
    Row(
        tanh_gaussian_entropy,
        sample=GAUSSIAN,
        oracle=entropy_by_quadrature,
        laws=[mirrored_and_bounded],
        edges=[
            Edge((ZERO, ZERO)),
            Edge((ZERO, np.full(CHANNELS, -10.0))),
            Edge((np.full(CHANNELS, 20.0), ZERO)),
            Edge((ZERO, np.full(CHANNELS, 5.0))),
            Edge((NOTHING, NOTHING)),
        ],
        **LOOSE,
    ),
    Row(
        tanh_gaussian_kl,
        sample=st.tuples(VALUE, LOG_STD, VALUE, LOG_STD),
        oracle=kl_in_closed_form,
        laws=[zero_only_to_itself],
        edges=[Edge((ZERO, ZERO, ZERO, ZERO))],
        **LOOSE,
    ),
    Row(
        tanh_gaussian_mode,
        sample=st.tuples(VALUE),
        oracle=squashed_median,
        laws=[half_the_mass_is_below],
        edges=[Edge((FAR,)), Edge((NOTHING,))],
    ),
    Row(
        categorical_log_probability,
        sample=st.tuples(integers(low=0, high=CHOICES - 1), LOGITS),
        oracle=log_p_by_scipy,
        laws=[probabilities_sum_to_one, a_shift_of_all_logits_changes_nothing],
        edges=[
            Edge((np.int32(1), np.zeros(CHOICES))),
            Edge((np.int32(1), np.asarray([-1e6, 1e6, 0.0, 0.0]))),
            Edge((np.int32(1), np.asarray([-np.inf, 1.0, 0.0, 0.0]))),
        ],
        refuses=[
            Refusal("shape of logits", (jnp.zeros(2, int), jnp.ones(4))),
            Refusal("at least one choice", (jnp.zeros((), int), jnp.ones(0))),
        ],
    ),
    Row(
        categorical_sample,
        sample=st.tuples(LOGITS, keys()),
        oracle=None,
        exempt={**NOT_A_FORMULA, "batch": "NaN logits still give an index"},
        laws=[draws_only_what_is_possible],
        differentiable=False,
        refuses=[Refusal("at least one choice", (jnp.ones(0), jax.random.key(0)))],
    ),
    Row(
        categorical_entropy,
        sample=st.tuples(LOGITS),
        oracle=choice_entropy_by_scipy,
        laws=[at_most_uniform, what_cannot_occur_adds_nothing],
        edges=[
            Edge((np.zeros(CHOICES),)),
            Edge((np.asarray([0.0, -np.inf, -np.inf, -np.inf]),)),
            Edge((np.asarray([1e6, -1e6, 0.0, 0.0]),)),
        ],
        refuses=[NO_CHOICE],
    ),
    Row(
        categorical_kl,
        sample=st.tuples(LOGITS, LOGITS),
        oracle=choice_kl_by_scipy,
        laws=[cross_entropy_less_entropy],
        edges=[
            Edge((np.zeros(CHOICES), np.zeros(CHOICES))),
            Edge((np.asarray([0.0, -np.inf, 1.0, 1.0]), np.zeros(CHOICES))),
            Edge((np.asarray([0.0, -np.inf, 1.0, 1.0]), np.asarray([0.0, -np.inf, 2.0, 1.0]))),
        ],
        refuses=[
            Refusal("one shape", (jnp.ones(2), jnp.ones(3))),
            Refusal("at least one choice", (jnp.ones(0), jnp.ones(0))),
        ],
    ),
    Row(
        categorical_mode,
        sample=st.tuples(LOGITS),
        oracle=first_of_the_largest,
        laws=[most_probable],
        edges=[Edge((np.zeros(CHOICES),))],
        differentiable=False,
        refuses=[NO_CHOICE],
    ),
]
