import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import special, stats

from neorl_core.losses import gaussian_nll, gumbel_loss, soft_clamp
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    decades,
    finite_grad,
    flags,
    in_units,
    mapped,
    reals,
    rows,
    series,
)

TEMPERATURE = st.one_of(reals(0.5, 20.0), decades().map(lambda t: abs(t) or 1.0))
GUMBEL = TEMPERATURE.map(lambda t: {"temperature": t, "max_exponent": 7.0})
BOUNDS = {"low": -10.0, "high": 0.5}


def linear_exponential(z):
    """``exp(z) - z - 1``; of a small ``z`` by a hypergeometric function: nothing cancels."""
    return z**2 / 2 * special.hyp1f1(1, 3, z) if abs(z) < 1 else np.exp(z) - z - 1


def gumbel_by_cases(predictions, targets, mask, *, temperature, max_exponent):
    exponents = [
        min((t - p) / temperature, max_exponent) for p, t in zip(predictions, targets, strict=True)
    ]
    largest = max([-1.0, *(z for z, counts in zip(exponents, mask, strict=True) if counts)])
    return np.asarray(
        [
            linear_exponential(z) * np.exp(-largest) if counts else 0.0
            for z, counts in zip(exponents, mask, strict=True)
        ]
    )


def masked_rows_are_inert(predictions, targets, mask, **options):
    wild = np.where(mask, targets, np.float32(np.nan))
    assert_close(
        mapped(gumbel_loss, predictions, wild, mask, **options),
        mapped(gumbel_loss, predictions, targets, mask, **options),
    )


def the_scale_carries_no_gradient(predictions, targets, mask, *, temperature, max_exponent):
    """The slope in the prediction is ``(1 - exp(z)) exp(-m) / temperature`` where not cut."""
    options = {"temperature": temperature, "max_exponent": max_exponent}
    slope, _ = finite_grad(gumbel_loss, predictions, targets, mask, **options)
    exact = (targets.astype(np.float64) - predictions) / temperature
    exponent = np.minimum(exact, max_exponent)
    largest = np.max(exponent, axis=1, where=mask, initial=-1.0)[:, None]
    expected = (1 - np.exp(exponent)) * np.exp(-largest) / temperature
    weights = 1 + np.cos(np.arange(targets.shape[1])) / 2
    away = np.abs(exact - max_exponent) > 1e-3
    expected = np.where(mask & (exact < max_exponent), weights * expected, 0.0)
    assert_close(
        np.where(away, slope, 0), np.where(away, expected, 0), rtol=1e-3, atol=1e-5, scale=1.0
    )


def soft_clamp_by_logs(x, *, low, high):
    """The published form, and the quotient that keeps it inside."""
    upper = high - np.logaddexp(0, high - x)
    return low + (high - low) * np.logaddexp(0, upper - low) / np.logaddexp(0, high - low)


def clamp(x, *, low, high):
    return soft_clamp(x, low, high)


def monotone_and_inside(x, *, low, high):
    result = np.asarray(mapped(clamp, np.sort(x, axis=1), low=low, high=high))
    assert (np.diff(result, axis=1) >= 0).all()
    assert (result >= low).all()
    assert (result <= high).all()
    narrow = np.asarray(mapped(clamp, 100 * x, low=-1.0, high=1.0))
    assert (np.abs(narrow) <= 1).all()


def nearly_the_identity_inside(x, *, low, high):
    middle = np.full_like(x, -5.0)
    assert_close(mapped(clamp, middle, low=low, high=high), middle, atol=3e-3)


def nll_by_scipy(mean, log_variance, targets, *, low, high):
    bounded = soft_clamp_by_logs(log_variance, low=low, high=high)
    return -stats.norm.logpdf(targets, mean, np.exp(bounded / 2))


def shifts_together(mean, log_variance, targets, **bounds):
    assert_close(
        mapped(gaussian_nll, mean + 2, log_variance, targets + 2, **bounds),
        mapped(gaussian_nll, mean, log_variance, targets, **bounds),
        rtol=2e-3,
        atol=1e-4,
    )


def best_at_the_mean(mean, log_variance, targets, **bounds):
    at_mean = np.asarray(mapped(gaussian_nll, mean, log_variance, mean, **bounds))
    off = np.asarray(mapped(gaussian_nll, mean, log_variance, targets, **bounds))
    assert (at_mean <= off + 1e-5).all()


ZEROS, FAR = np.zeros(7), np.full(7, 1e4)
ALL, NONE = np.ones(7, bool), np.zeros(7, bool)
WARM = {"temperature": 1.0, "max_exponent": 7.0}


def wide(name, other, shape):
    """The refusal of an end that does not broadcast against an array of shape (2,)."""
    return (
        f"{name} must broadcast against the shape (2,) of {other}, got shape {shape}; "
        "give one number, or one for each element"
    )


ROWS = [
    Row(
        gumbel_loss,
        sample=in_units(st.tuples(rows(7), rows(7), flags(7))),
        options=GUMBEL,
        oracle=gumbel_by_cases,
        laws=[masked_rows_are_inert, the_scale_carries_no_gradient],
        edges=[
            Edge((ZEROS, ZEROS, ALL), WARM),
            # Errors of far less than a temperature, where the terms cancel.
            Edge((ZEROS, 10.0 ** -np.arange(2.0, 9.0), ALL), WARM),
            Edge((ZEROS, np.linspace(-1e-4, 1e-4, 7), ALL), WARM),
            Edge((-FAR, FAR, ALL), WARM),
            Edge((FAR, -FAR, ALL), WARM),
            Edge((-FAR, FAR, ALL), {"temperature": 1.0, "max_exponent": 85.0}),
            Edge((ZEROS, FAR, NONE), WARM),
            Edge((np.zeros(0), np.zeros(0), np.zeros(0, bool)), WARM),
        ],
        refuses=[
            Refusal(
                "predictions and targets must have one shape",
                (jnp.ones(2), jnp.ones(3)),
                {"temperature": 1.0},
            ),
            Refusal(
                "max_exponent",
                (jnp.ones(2), jnp.ones(2)),
                {"temperature": 1.0, "max_exponent": 0.0},
            ),
            Refusal(
                "targets and mask must have one shape",
                (jnp.ones(2), jnp.ones(2), jnp.ones(3, bool)),
                {"temperature": 1.0},
            ),
            Refusal(
                "temperature must be finite and positive",
                (jnp.ones(2), jnp.ones(2)),
                {"temperature": 0.0},
            ),
        ],
    ),
    Row(
        clamp,
        name="soft_clamp",
        sample=in_units(series(1)),
        options=BOUNDS,
        oracle=soft_clamp_by_logs,
        laws=[monotone_and_inside, nearly_the_identity_inside],
        edges=[
            Edge((np.full(7, 1e30),), BOUNDS),
            Edge((np.full(7, -1e30),), BOUNDS),
            Edge((np.zeros(0),), BOUNDS),
        ],
        refuses=[
            Refusal("low must be below high", (jnp.ones(2),), {"low": 1.0, "high": 1.0}),
            Refusal("low must be below high", (jnp.ones(2),), {"low": 1.0, "high": 0.0}),
            *(
                Refusal(wide(name, "x", shape), (jnp.ones(2),), {**BOUNDS, name: jnp.ones(shape)})
                for name in ("low", "high")
                for shape in ((3,), (2, 1))
            ),
        ],
    ),
    Row(
        gaussian_nll,
        sample=series(3, elements=reals(-10, 10)),
        options=BOUNDS,
        oracle=nll_by_scipy,
        laws=[shifts_together, best_at_the_mean],
        edges=[
            Edge((ZEROS, np.full(7, -1e6), ZEROS), BOUNDS),
            Edge((-FAR, np.full(7, 1e6), FAR), BOUNDS),
            Edge((np.zeros(0), np.zeros(0), np.zeros(0)), BOUNDS),
        ],
        refuses=[
            Refusal(
                "mean and log_variance must have one shape",
                (jnp.ones(2), jnp.ones(3), jnp.ones(2)),
            ),
            Refusal(
                "mean and targets must have one shape",
                (jnp.ones(2), jnp.ones(2), jnp.ones(3)),
            ),
            Refusal(
                "low must be below high",
                (jnp.ones(2), jnp.ones(2), jnp.ones(2)),
                {"low": 1.0, "high": 0.0},
            ),
            *(
                Refusal(wide(name, "targets", shape), (jnp.ones(2),) * 3, {name: jnp.ones(shape)})
                for name in ("low", "high")
                for shape in ((3,), (2, 1))
            ),
        ],
        # exp(-v) multiplies the rounding of v, as large as 10.
    ),
]
