import jax
import numpy as np
from hypothesis import strategies as st

from neorl_core.replay import (
    batch_indices,
)
from neorl_core.testing import Edge, Refusal, Row, integers, keys, mapped

KEY = jax.random.key(0)
STEPS = integers(low=0, high=2**30)
SIZES = st.sampled_from([{"n": 100, "batch": 8}, {"n": 7, "batch": 3}])
RANDOM = {"oracle": "a random draw: the laws and test_sampling.py fix its distribution"}


def every_index_is_a_row(function):
    def law(key, step, *, n, batch):
        rows = np.asarray(mapped(function, key, step, n=n, batch=batch))
        assert rows.dtype == np.int32
        assert np.all((rows >= 0) & (rows < n))

    return law


def another_step_draws_others(function):
    def law(key, step, *, n, batch):
        here = mapped(function, key, step, n=1000, batch=200)
        there = mapped(function, key, step + 1, n=1000, batch=200)
        assert np.mean(np.asarray(here) == np.asarray(there)) < 0.1

    return law


ROWS = [
    Row(
        batch_indices,
        sample=st.tuples(keys(), STEPS),
        options=SIZES,
        oracle=None,
        laws=[every_index_is_a_row(batch_indices), another_step_draws_others(batch_indices)],
        edges=[Edge((np.zeros(2, np.uint32), np.asarray(3)), {"n": 1, "batch": 0})],
        refuses=[
            Refusal("n must be from 1", (KEY, 0, 0, 4)),
            Refusal("n must be from 1", (KEY, 0, 2**31, 4)),
            Refusal("negative", (KEY, 0, 4, -1)),
        ],
        differentiable=False,
        exempt=RANDOM,
    ),
]
