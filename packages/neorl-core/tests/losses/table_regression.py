import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.losses import huber_loss, pinball_loss, quantile_huber_loss, squared_loss
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    finite_grad,
    mapped,
    reals,
    rows,
    series,
)

LEVEL = reals(0.03125, 0.96875)
THRESHOLD = reals(0.0625, 50.0)
HUBER = THRESHOLD.map(lambda threshold: {"threshold": threshold})
PINBALL = LEVEL.map(lambda level: {"level": level})


def squares(target, prediction):
    return np.asarray([(t - p) * (t - p) for t, p in zip(target, prediction, strict=True)])


def symmetric_and_shifted(target, prediction):
    assert_close(
        mapped(squared_loss, prediction + 4, target + 4),
        mapped(squared_loss, target, prediction),
        rtol=1e-3,
    )


def huber_by_cases(target, prediction, *, threshold):
    distance = np.abs(target - prediction)
    return np.where(distance <= threshold, distance**2 / 2, threshold * distance - threshold**2 / 2)


def the_slope_is_the_clipped_error(target, prediction, *, threshold):
    """The gradient in the prediction is ``clip(prediction - target, -threshold, threshold)``."""
    _, slope = finite_grad(huber_loss, target, prediction, threshold=threshold)
    weights = 1 + np.cos(np.arange(target.shape[1])) / 2
    expected = np.clip(prediction - target, -threshold, threshold)
    assert_close(slope, weights * expected, rtol=1e-4)


def a_wide_threshold_is_half_the_square(target, prediction, *, threshold):
    assert_close(
        mapped(huber_loss, target, prediction, threshold=500.0), (target - prediction) ** 2 / 2
    )


def pinball_by_cases(target, prediction, *, level):
    return np.asarray(
        [
            level * (t - p) if t > p else (1 - level) * (p - t)
            for t, p in zip(target, prediction, strict=True)
        ]
    )


def levels_mirror(target, prediction, *, level):
    assert_close(
        mapped(pinball_loss, -target, -prediction, level=1 - level),
        mapped(pinball_loss, target, prediction, level=level),
    )


def both_levels_make_the_distance(target, prediction, *, level):
    losses = [mapped(pinball_loss, target, prediction, level=share) for share in (level, 1 - level)]
    assert_close(losses[0] + losses[1], np.abs(target - prediction))


def quantile_huber_by_loops(target, prediction, level, *, threshold):
    total = 0.0
    for theta, share in zip(prediction, level, strict=True):
        losses = []
        for value in target:
            error = value - theta
            loss = float(huber_by_cases(value, theta, threshold=threshold))
            losses.append(abs(share - (error < 0)) * loss / threshold)
        total += np.mean(losses) if losses else 0.0
    return total


def order_of_samples_is_free(target, prediction, level, *, threshold):
    assert_close(
        mapped(quantile_huber_loss, target[:, ::-1], prediction, level, threshold=threshold),
        mapped(quantile_huber_loss, target, prediction, level, threshold=threshold),
    )


def scales_with_its_units(target, prediction, level, *, threshold):
    assert_close(
        mapped(quantile_huber_loss, 4 * target, 4 * prediction, level, threshold=4 * threshold),
        4 * mapped(quantile_huber_loss, target, prediction, level, threshold=threshold),
    )


ZEROS, ONES, FAR = np.zeros(7), np.ones(7), np.full(7, 1e8)
PAIR = (jnp.ones(2), jnp.ones((2, 1)))

ROWS = [
    Row(
        squared_loss,
        sample=series(2),
        oracle=squares,
        laws=[symmetric_and_shifted],
        edges=[Edge((ZEROS, ZEROS)), Edge((FAR, -FAR)), Edge((np.zeros(0), np.zeros(0)))],
        refuses=[Refusal("target and prediction must have one shape", PAIR)],
    ),
    Row(
        huber_loss,
        sample=series(2),
        options=HUBER,
        oracle=huber_by_cases,
        laws=[the_slope_is_the_clipped_error, a_wide_threshold_is_half_the_square],
        edges=[
            Edge((ZEROS, ZEROS), {"threshold": 1.0}),
            Edge((ONES, ZEROS), {"threshold": 1.0}),
            Edge((np.full(7, 1e30), ZEROS), {"threshold": 1.0}),
            Edge((np.zeros(0), np.zeros(0)), {"threshold": 1.0}),
        ],
        refuses=[
            Refusal("target and prediction must have one shape", PAIR),
            Refusal("threshold must be finite and positive", (ZEROS, ZEROS), {"threshold": 0.0}),
            Refusal("threshold must be finite and positive", (ZEROS, ZEROS), {"threshold": -1.0}),
        ],
    ),
    Row(
        pinball_loss,
        sample=series(2),
        options=PINBALL,
        oracle=pinball_by_cases,
        laws=[levels_mirror, both_levels_make_the_distance],
        edges=[
            Edge((ZEROS, ZEROS), {"level": 0.5}),
            Edge((FAR, -FAR), {"level": 0.25}),
            Edge((np.zeros(0), np.zeros(0)), {"level": 0.5}),
        ],
        refuses=[
            Refusal("target and prediction must have one shape", PAIR, {"level": 0.5}),
            Refusal("level must be in (0, 1)", (ZEROS, ZEROS), {"level": 1.0}),
            Refusal("level must be in (0, 1)", (ZEROS, ZEROS), {"level": 0.0}),
            *(
                Refusal(
                    f"level must broadcast against the shape (7,) of target, got shape {shape}; "
                    "give one number, or one for each element",
                    (ZEROS, ZEROS),
                    {"level": jnp.full(shape, 0.5)},
                )
                for shape in ((3,), (7, 1))
            ),
        ],
    ),
    Row(
        quantile_huber_loss,
        sample=st.tuples(rows(7), rows(5), rows(5, elements=LEVEL)),
        options=HUBER,
        oracle=quantile_huber_by_loops,
        laws=[order_of_samples_is_free, scales_with_its_units],
        edges=[
            Edge((ZEROS, np.zeros(5), np.full(5, 0.5)), {"threshold": 1.0}),
            Edge((FAR, np.zeros(5), np.full(5, 0.5)), {"threshold": 1.0}),
            Edge((np.zeros(0), np.zeros(5), np.full(5, 0.5)), {"threshold": 1.0}),
            Edge((ZEROS, np.zeros(0), np.zeros(0)), {"threshold": 1.0}),
        ],
        refuses=[
            Refusal(
                "prediction and level must have one shape",
                (jnp.ones(3), jnp.ones(2), jnp.full(3, 0.5)),
            ),
            Refusal("one axis each", (jnp.ones((2, 3)), jnp.ones(2), jnp.full(2, 0.5))),
            Refusal("level must be in (0, 1)", (jnp.ones(3), jnp.ones(2), jnp.ones(2))),
            Refusal(
                "threshold must be finite and positive",
                (jnp.ones(3), jnp.ones(2), jnp.full(2, 0.5)),
                {"threshold": -1.0},
            ),
        ],
    ),
]
