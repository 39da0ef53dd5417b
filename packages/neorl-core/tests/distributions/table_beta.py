import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import stats

from neorl_core.distributions import (
    beta_entropy,
    beta_log_prob,
    beta_mean,
    beta_mode,
    beta_sample,
)
from neorl_core.testing import Edge, Refusal, Row, assert_close, keys, mapped, reals, rows

CHANNELS = 2
SHAPE = rows(CHANNELS, elements=reals(0.25, 20))
BOX = st.sampled_from([{"low": -1.0, "high": 1.0}, {"low": 2.0, "high": 6.0}])
UNIT = {"low": 0.0, "high": 1.0}


def frozen(a, b, low, high):
    return stats.beta(a, b, loc=low, scale=high - low)


def log_density_by_scipy(x, a, b, *, low=-1.0, high=1.0, margin=1e-5):
    inset = margin * (high - low)
    return np.sum(frozen(a, b, low, high).logpdf(np.clip(x, low + inset, high - inset)))


def on_box(x, a, b, *, low, high):
    """``x`` is drawn as a share of the box."""
    x = 1.0 * jnp.asarray(x)
    start, width = (jnp.asarray(number, x.dtype) for number in (low, high - low))
    return beta_log_prob(start + width * x, a, b, low=low, high=high)


def on_box_by_scipy(x, a, b, *, low, high):
    return log_density_by_scipy(low + (high - low) * x, a, b, low=low, high=high)


def mirrored(x, a, b, **box):
    assert_close(
        mapped(on_box, 1 - x, b, a, **box), mapped(on_box, x, a, b, **box), rtol=1e-3, atol=1e-3
    )


def outside_it_is_nan(x, a, b, *, low, high):
    assert np.isnan(mapped(on_box, x + 1.5, a, b, low=low, high=high)).all()


def one_and_one_is_uniform(x, a, b):
    ones = np.ones_like(a)
    assert_close(mapped(beta_log_prob, x, ones, ones), np.full(3, -CHANNELS * np.log(2)))


def entropy_by_scipy(a, b, *, low, high):
    return np.sum(frozen(a, b, low, high).entropy())


def at_most_uniform(a, b, *, low, high):
    entropy = np.asarray(mapped(beta_entropy, a, b, low=low, high=high))
    assert np.all(entropy <= CHANNELS * np.log(high - low) + 1e-4)


def mean_by_scipy(a, b, *, low, high):
    return frozen(a, b, low, high).mean()


def mirrored_mean(a, b, *, low, high):
    there = mapped(beta_mean, b, a, low=low, high=high)
    assert_close(there, low + high - mapped(beta_mean, a, b, low=low, high=high), atol=1e-5)


def mode_by_search(a, b, *, low, high):
    """The best of a fine grid, up to next to both ends."""
    modes = []
    for first, second in zip(a, b, strict=True):
        if first == second:
            modes.append((low + high) / 2)
            continue
        grid = np.clip(np.linspace(0, 1, 20_001), 1e-9, 1 - 1e-9)
        best = grid[np.argmax((first - 1) * np.log(grid) + (second - 1) * np.log1p(-grid))]
        modes.append(low + (high - low) * best)
    return np.asarray(modes)


def the_density_falls_away_from_it(a, b, *, low, high):
    inside = (a > 1.5) & (b > 1.5)
    mode = np.asarray(mapped(beta_mode, a, b, low=low, high=high))
    assert np.all((mode > low) & (mode < high) | ~inside)


def stays_in_the_box(a, b, key, *, low, high):
    drawn = np.asarray(mapped(beta_sample, a, b, key, low=low, high=high))
    assert np.all((drawn >= low) & (drawn <= high))


ONES, NOTHING = np.ones(CHANNELS), np.zeros(0)
RAW_KEY = np.zeros(2, np.uint32)
CROSSED = Refusal("low must be below high", (jnp.ones(2), jnp.ones(2)), {"low": 1.0, "high": 1.0})
WIDE = [
    CROSSED,
    Refusal("b must broadcast against the shape (2,) of a", (jnp.ones(2), jnp.ones(3))),
    Refusal("a needs a last axis of channels", (jnp.ones(()), jnp.ones(()))),
    Refusal("low must broadcast", (jnp.ones(2), jnp.ones(2)), {"low": -jnp.ones(3)}),
]

ROWS = [
    Row(
        on_box,
        name="beta_log_prob",
        sample=st.tuples(rows(CHANNELS, elements=reals(0.0625, 0.9375)), SHAPE, SHAPE),
        options=BOX,
        oracle=on_box_by_scipy,
        laws=[mirrored, outside_it_is_nan],
        edges=[
            Edge((ONES / 2, ONES, ONES), UNIT),
            Edge((ONES / 4, 1e3 * ONES, 3e3 * ONES), UNIT),
            Edge((ONES / 2, 1e-3 * ONES, 1e-3 * ONES), UNIT),
            Edge((NOTHING, NOTHING, NOTHING), UNIT),
        ],
        rtol=1e-3,
        atol=1e-4,
    ),
    Row(
        beta_log_prob,
        sample=st.tuples(rows(CHANNELS, elements=reals(-0.875, 0.875)), SHAPE, SHAPE),
        oracle=log_density_by_scipy,
        laws=[one_and_one_is_uniform],
        edges=[
            Edge((-ONES, ONES / 2, 2 * ONES), {"margin": 0.0625}),
            Edge((ONES, ONES / 2, 2 * ONES), {"margin": 0.0625}),
        ],
        refuses=[
            Refusal("x and a must have one shape", (jnp.ones(3), jnp.ones(2), jnp.ones(2))),
            Refusal("margin must be in (0, 1)", (jnp.ones(2),) * 3, {"margin": 0.0}),
            Refusal("low must be below high", (jnp.ones(2),) * 3, {"low": 1.0, "high": 0.0}),
        ],
        rtol=1e-3,
        atol=1e-4,
    ),
    Row(
        beta_sample,
        sample=st.tuples(SHAPE, SHAPE, keys()),
        options=BOX,
        oracle=None,
        exempt={"oracle": "a draw; its distribution is tested in test_distributions_on_a_box.py"},
        laws=[stays_in_the_box],
        edges=[
            Edge((1e-2 * ONES, 1e-2 * ONES, RAW_KEY), UNIT),
        ],
        refuses=[
            Refusal(
                "low must be below high",
                (jnp.ones(2), jnp.ones(2), jax.random.key(0)),
                {"low": 1.0, "high": 1.0},
            )
        ],
    ),
    Row(
        beta_entropy,
        sample=st.tuples(SHAPE, SHAPE),
        options=BOX,
        oracle=entropy_by_scipy,
        laws=[at_most_uniform],
        edges=[Edge((ONES, ONES), UNIT), Edge((NOTHING, NOTHING), UNIT)],
        refuses=WIDE,
        rtol=1e-4,
        atol=2e-5,
    ),
    Row(
        beta_mean,
        sample=st.tuples(SHAPE, SHAPE),
        options=BOX,
        oracle=mean_by_scipy,
        laws=[mirrored_mean],
        edges=[Edge((1e-6 * ONES, 1e6 * ONES), UNIT)],
        refuses=WIDE,
    ),
    Row(
        beta_mode,
        sample=st.tuples(SHAPE, SHAPE),
        options=BOX,
        oracle=mode_by_search,
        exempt={"slope": "the oracle stands on a grid"},
        laws=[the_density_falls_away_from_it],
        edges=[
            Edge((np.asarray([1.0, 2.0]), np.asarray([2.0, 1.0])), UNIT),
            Edge((np.asarray([0.5, 1.0]), np.asarray([0.5, 1.0])), UNIT),
            Edge((np.asarray([0.5, 0.25]), np.asarray([0.25, 0.5])), UNIT),
        ],
        refuses=WIDE,
        atol=1e-4,
    ),
]
