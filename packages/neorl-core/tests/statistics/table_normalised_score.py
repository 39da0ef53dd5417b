import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.statistics import normalised_score
from neorl_core.testing import Edge, Refusal, Row, assert_close, mapped, reals, rows


def by_hand(returns, *, low, high):
    return 100 * (returns - low) / (high - low)


def references_score_zero_and_hundred(returns, *, low, high):
    ends = np.broadcast_to(np.asarray([low, high], np.float32), (len(returns), 2))
    scores = mapped(normalised_score, ends, low=low, high=high)
    assert_close(scores, np.broadcast_to([0.0, 100.0], ends.shape), atol=1e-5)


ROWS = [
    Row(
        normalised_score,
        sample=st.tuples(rows(7)),
        options=st.fixed_dictionaries(
            {"low": reals(-5, 1).map(float), "high": reals(2, 9).map(float)}
        ),
        oracle=by_hand,
        laws=[references_score_zero_and_hundred],
        edges=[Edge((np.zeros(0),), {"low": 0.0, "high": 1.0})],
        refuses=[
            Refusal("must differ", (1.0,), {"low": 2.0, "high": 2.0}),
            *(
                Refusal(
                    f"{end} must be one number, got shape (2, 1); "
                    "index it, or use jax.vmap for several",
                    (jnp.ones(2),),
                    {"low": 0.0, "high": 2.0, end: jnp.ones((2, 1))},
                )
                for end in ("low", "high")
            ),
        ],
    ),
]
