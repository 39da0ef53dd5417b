import jax.numpy as jnp
import numpy as np

from neorl_core.losses import expectile_loss
from neorl_core.testing import Edge, Refusal, Row, assert_close, in_units, mapped, reals, series

EXPECTILES = reals(0.0625, 0.9375).map(lambda expectile: {"expectile": float(expectile)})


def expectile_loss_by_cases(predictions, targets, *, expectile):
    losses = np.empty(targets.shape)
    for index, (p, t) in enumerate(zip(predictions, targets, strict=True)):
        losses[index] = (expectile if t > p else 1 - expectile) * (t - p) ** 2
    return losses


def half_is_half_the_square(predictions, targets, *, expectile):
    assert_close(
        mapped(expectile_loss, predictions, targets, expectile=0.5),
        (targets - predictions) ** 2 / 2,
    )


def mirrored(predictions, targets, *, expectile):
    assert_close(
        mapped(expectile_loss, -predictions, -targets, expectile=1 - expectile),
        mapped(expectile_loss, predictions, targets, expectile=expectile),
    )


ROWS = [
    Row(
        expectile_loss,
        sample=in_units(series(2)),
        options=EXPECTILES,
        oracle=expectile_loss_by_cases,
        laws=[half_is_half_the_square, mirrored],
        edges=[
            Edge((np.zeros(7), np.zeros(7)), {"expectile": 0.75}),
            Edge((np.full(7, 1e4), np.full(7, -1e4)), {"expectile": 0.9375}),
            Edge((np.zeros(0), np.zeros(0)), {"expectile": 0.75}),
        ],
        refuses=[
            Refusal(
                "predictions and targets must have one shape",
                (jnp.ones(2), jnp.ones(3)),
                {"expectile": 0.5},
            ),
            Refusal("expectile must be in (0, 1)", (jnp.ones(2), jnp.ones(2)), {"expectile": 1.0}),
            Refusal("expectile must be in (0, 1)", (jnp.ones(2), jnp.ones(2)), {"expectile": 0.0}),
            Refusal("expectile must be in (0, 1)", (jnp.ones(2), jnp.ones(2)), {"expectile": 3.0}),
        ],
    ),
]
