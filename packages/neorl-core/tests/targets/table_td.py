import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.targets import clipped_double_td_target, td_target
from neorl_core.testing import Edge, Refusal, Row, assert_close, flags, mapped, reals, rows

LENGTH, MEMBERS = 7, 2
DISCOUNTS = reals(0.0, 1.0).map(lambda discount: {"discount": float(discount)})


def td_target_by_cases(reward, next_value, terminated, *, discount):
    return np.array(
        [r if ended else r + discount * v
         for r, v, ended in zip(reward, next_value, terminated, strict=True)]
    )  # fmt: skip


def clipped_double_by_cases(reward, next_values, terminated, *, discount):
    least = [min(column) for column in next_values.T]
    return td_target_by_cases(reward, least, terminated, discount=discount)


def termination_hides_the_next_value(reward, next_value, terminated, *, discount):
    hidden = np.where(terminated, np.nan, next_value).astype(np.float32)
    assert_close(
        mapped(td_target, reward, hidden, terminated, discount=discount),
        mapped(td_target, reward, next_value, terminated, discount=discount),
    )


def shift_of_values_is_discounted(reward, next_value, terminated, *, discount):
    shifted = mapped(td_target, reward, next_value + 1, terminated, discount=discount)
    plain = mapped(td_target, reward, next_value, terminated, discount=discount)
    assert_close(shifted - plain, discount * ~terminated, scale=200.0)


def order_of_members_is_free(reward, next_values, terminated, *, discount):
    assert_close(
        mapped(clipped_double_td_target, reward, next_values[:, ::-1], terminated,
               discount=discount),
        mapped(clipped_double_td_target, reward, next_values, terminated, discount=discount),
    )  # fmt: skip


def equal_members_are_one(reward, next_values, terminated, *, discount):
    twice = np.stack([next_values[:, 0]] * MEMBERS, axis=1)
    assert_close(
        mapped(clipped_double_td_target, reward, twice, terminated, discount=discount),
        mapped(td_target, reward, next_values[:, 0], terminated, discount=discount),
    )


ENDED = np.array([True, False, False])
ROWS = [
    Row(
        td_target,
        sample=st.tuples(rows(LENGTH), rows(LENGTH), flags(LENGTH)),
        options=DISCOUNTS,
        oracle=td_target_by_cases,
        laws=[termination_hides_the_next_value, shift_of_values_is_discounted],
        edges=[
            Edge((np.zeros(3), np.full(3, 1e4), ENDED), {"discount": 1.0}),
            Edge((np.ones(3), np.ones(3), ENDED), {"discount": 0.0}),
            Edge((np.zeros(0), np.zeros(0), np.zeros(0, bool)), {"discount": 0.5}),
        ],
        refuses=[
            Refusal(
                "reward and next_value must have one shape",
                (jnp.ones(3), jnp.ones(2), ENDED),
                {"discount": 0.5},
            ),
            Refusal(
                "reward and terminated must have one shape",
                (jnp.ones(2), jnp.ones(2), ENDED),
                {"discount": 0.5},
            ),
            Refusal(
                "discount must be in [0, 1]", (jnp.ones(3), jnp.ones(3), ENDED), {"discount": 1.5}
            ),
        ],
    ),
    Row(
        clipped_double_td_target,
        sample=st.tuples(rows(LENGTH), rows(MEMBERS, LENGTH), flags(LENGTH)),
        options=DISCOUNTS,
        oracle=clipped_double_by_cases,
        laws=[order_of_members_is_free, equal_members_are_one],
        edges=[
            Edge((np.zeros(3), np.zeros((2, 3)), ENDED), {"discount": 1.0}),
            Edge((np.zeros(0), np.zeros((2, 0)), np.zeros(0, bool)), {"discount": 1.0}),
        ],
        refuses=[
            Refusal("first axis", (jnp.ones(3), jnp.ones(3), ENDED), {"discount": 0.5}),
            Refusal("first axis", (jnp.ones(3), jnp.ones((0, 3)), ENDED), {"discount": 0.5}),
            Refusal(
                "next_values needs a first axis of at least one ensemble member before the axes of "
                "reward, got shape (2, 1) for reward of (3,); for one critic add the axis with "
                "next_values[None]",
                (jnp.ones(3), jnp.ones((2, 1)), ENDED),
                {"discount": 0.5},
            ),
        ],
    ),
]
