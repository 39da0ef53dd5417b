import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.losses import (
    combo_regulariser,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    flags,
    in_units,
    mapped,
    rows,
)

BATCH, CHOICES = 3, 4


def means_by_numpy(q_data, q_rollout, mask, rollout_mask):
    return (np.mean(q_rollout[rollout_mask]) if rollout_mask.any() else 0.0) - (
        np.mean(q_data[mask]) if mask.any() else 0.0
    )


def masked_rows_are_inert(q_data, q_rollout, mask, rollout_mask):
    wild = np.where(mask, q_data, np.nan), np.where(rollout_mask, q_rollout, np.nan)
    wild = [values.astype(np.float32) for values in wild]
    assert_close(
        mapped(combo_regulariser, *wild, mask, rollout_mask),
        mapped(combo_regulariser, q_data, q_rollout, mask, rollout_mask),
    )


ALL = np.ones(BATCH, bool)

ROWS = [
    Row(
        combo_regulariser,
        sample=in_units(st.tuples(rows(BATCH), rows(CHOICES), flags(BATCH), flags(CHOICES))),
        oracle=means_by_numpy,
        laws=[masked_rows_are_inert],
        edges=[
            Edge((np.ones(BATCH), np.ones(BATCH), ~ALL, ~ALL)),
            Edge((np.full(BATCH, 1e30), np.full(BATCH, -1e30), ALL, ALL)),
        ],
        refuses=[
            Refusal("mask must be boolean", (jnp.ones(2), jnp.ones(2), jnp.ones(2))),
            Refusal(
                "x and mask must have one shape", (jnp.ones(2), jnp.ones(2), jnp.ones(3, bool))
            ),
        ],
    ),
]
