import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.losses import (
    huber_loss,
    quantile_huber_loss,
    squared_loss,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    decades,
    finite_grad,
    in_units,
    mapped,
    reals,
    rows,
    series,
)

LEVEL = reals(0.03125, 0.96875)
DELTA = reals(0.0625, 50.0)
HUBER = st.one_of(DELTA, decades().map(lambda delta: abs(delta) or 1.0)).map(
    lambda delta: {"delta": delta}
)


def squares(predictions, targets):
    return np.asarray([(t - p) * (t - p) for p, t in zip(predictions, targets, strict=True)])


def symmetric_and_shifted(predictions, targets):
    size = np.abs(targets).max(axis=1, initial=0, keepdims=True)
    assert_close(
        mapped(squared_loss, targets + size, predictions + size),
        mapped(squared_loss, predictions, targets),
        rtol=1e-3,
        scale=float(np.max(np.square(size) + np.square(predictions), initial=0)),
    )


def huber_by_cases(predictions, targets, *, delta):
    distance = np.abs(targets - predictions)
    return np.where(distance <= delta, distance**2 / 2, delta * distance - delta**2 / 2)


def the_slope_is_the_clipped_error(predictions, targets, *, delta):
    """The gradient in the prediction is ``clip(predictions - targets, -delta, delta)``."""
    slope, _ = finite_grad(huber_loss, predictions, targets, delta=delta)
    weights = 1 + np.cos(np.arange(targets.shape[1])) / 2
    expected = np.clip(predictions - targets, -delta, delta)
    assert_close(slope, weights * expected, rtol=1e-4)


def a_wide_delta_is_half_the_square(predictions, targets, *, delta):
    wide = 4 * float(np.max(np.abs([predictions, targets]), initial=1.0))
    assert_close(
        mapped(huber_loss, predictions, targets, delta=wide), (targets - predictions) ** 2 / 2
    )


def quantile_huber_by_loops(predictions, targets, quantile, *, delta):
    total = 0.0
    for theta, level in zip(predictions, quantile, strict=True):
        losses = []
        for value in targets:
            error = value - theta
            loss = float(huber_by_cases(theta, value, delta=delta))
            losses.append(abs(level - (error < 0)) * loss / delta)
        total += np.mean(losses) if losses else 0.0
    return total


def order_of_samples_is_free(predictions, targets, quantile, *, delta):
    assert_close(
        mapped(quantile_huber_loss, predictions, targets[:, ::-1], quantile, delta=delta),
        mapped(quantile_huber_loss, predictions, targets, quantile, delta=delta),
    )


def scales_with_its_units(predictions, targets, quantile, *, delta):
    assert_close(
        mapped(quantile_huber_loss, 4 * predictions, 4 * targets, quantile, delta=4 * delta),
        4 * mapped(quantile_huber_loss, predictions, targets, quantile, delta=delta),
    )


ZEROS, ONES, FAR = np.zeros(7), np.ones(7), np.full(7, 1e8)
PAIR = (jnp.ones(2), jnp.ones((2, 1)))

ROWS = [
    Row(
        squared_loss,
        sample=in_units(series(2)),
        oracle=squares,
        laws=[symmetric_and_shifted],
        edges=[Edge((ZEROS, ZEROS)), Edge((FAR, -FAR)), Edge((np.zeros(0), np.zeros(0)))],
        refuses=[Refusal("predictions and targets must have one shape", PAIR)],
    ),
    Row(
        huber_loss,
        sample=in_units(series(2)),
        options=HUBER,
        oracle=huber_by_cases,
        laws=[the_slope_is_the_clipped_error, a_wide_delta_is_half_the_square],
        edges=[
            Edge((ZEROS, ZEROS), {"delta": 1.0}),
            Edge((ONES, ZEROS), {"delta": 1.0}),
            Edge((np.full(7, 1e30), ZEROS), {"delta": 1.0}),
            Edge((np.zeros(0), np.zeros(0)), {"delta": 1.0}),
        ],
        refuses=[
            Refusal("predictions and targets must have one shape", PAIR),
            Refusal("delta must be finite and positive", (ZEROS, ZEROS), {"delta": 0.0}),
            Refusal("delta must be finite and positive", (ZEROS, ZEROS), {"delta": -1.0}),
        ],
    ),
    Row(
        quantile_huber_loss,
        sample=st.tuples(in_units(st.tuples(rows(5), rows(7))), rows(5, elements=LEVEL)).map(
            lambda drawn: (*drawn[0], drawn[1])
        ),
        options=HUBER,
        oracle=quantile_huber_by_loops,
        laws=[order_of_samples_is_free, scales_with_its_units],
        edges=[
            Edge((np.zeros(5), ZEROS, np.full(5, 0.5)), {"delta": 1.0}),
            Edge((np.zeros(5), FAR, np.full(5, 0.5)), {"delta": 1.0}),
            Edge((np.zeros(5), np.zeros(0), np.full(5, 0.5)), {"delta": 1.0}),
            Edge((np.zeros(0), ZEROS, np.zeros(0)), {"delta": 1.0}),
        ],
        refuses=[
            Refusal(
                "predictions and quantile must have one shape",
                (jnp.ones(2), jnp.ones(3), jnp.full(3, 0.5)),
            ),
            Refusal("one axis each", (jnp.ones(2), jnp.ones((2, 3)), jnp.full(2, 0.5))),
            Refusal("quantile must be in (0, 1)", (jnp.ones(2), jnp.ones(3), jnp.ones(2))),
            Refusal(
                "delta must be finite and positive",
                (jnp.ones(2), jnp.ones(3), jnp.full(2, 0.5)),
                {"delta": -1.0},
            ),
        ],
    ),
]
