import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.costs import penalised_reward
from neorl_core.testing import Edge, Refusal, Row, assert_close, mapped, reals, rows


def weighted_by_sum(reward, cost, penalty):
    return np.array([r - sum(p * c for p, c in zip(penalty, row, strict=True))
                     for r, row in zip(reward, cost, strict=True)])  # fmt: skip


def no_penalty_no_change(reward, cost, penalty):
    assert_close(mapped(penalised_reward, reward, cost, 0 * penalty), reward)


def penalties_add(reward, cost, penalty):
    twice = mapped(penalised_reward, mapped(penalised_reward, reward, cost, penalty), cost, penalty)
    assert_close(twice, mapped(penalised_reward, reward, cost, 2 * penalty), scale=1e4)


ROWS = [
    Row(
        penalised_reward,
        sample=st.tuples(rows(7), rows(7, 2), rows(2, elements=reals(0.0, 10.0))),
        oracle=weighted_by_sum,
        laws=[no_penalty_no_change, penalties_add],
        edges=[
            Edge((np.ones(7), np.zeros((7, 0)), np.zeros(0))),
            Edge((np.zeros(0), np.zeros((0, 2)), np.ones(2))),
        ],
        refuses=[
            Refusal(
                "cost must have the shape of reward and one last axis as long as penalty, got "
                "reward (3,), cost (3, 2), penalty (4,)",
                (jnp.ones(3), jnp.ones((3, 2)), jnp.ones(4)),
            ),
            Refusal("last axis", (jnp.ones(3), jnp.ones(3), jnp.ones(()))),
            Refusal(
                "penalty must be finite and not negative",
                (jnp.ones(3), jnp.ones((3, 2)), jnp.array([1.0, -1.0])),
            ),
        ],
    ),
]
