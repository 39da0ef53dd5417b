import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.targets import clipped_double_td_target, double_td_target, regularised_td_target
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    finite_grad,
    flags,
    mapped,
    reals,
    rows,
)

SHARE = reals(0, 1)
DISCOUNT = SHARE.map(lambda discount: {"discount": discount})


def double_by_cases(reward, next_online, next_target, terminated, *, discount):
    targets = []
    for r, online, slow, ended in zip(reward, next_online, next_target, terminated, strict=True):
        best = max(range(len(online)), key=lambda i: online[i])
        targets.append(r if ended else r + discount * slow[best])
    return np.asarray(targets)


def one_network_takes_the_largest(reward, next_online, next_target, terminated, *, discount):
    """Choosing and valuing by one network is plain Q-learning."""
    follows = np.where(terminated, 0, next_online.max(axis=-1))
    assert_close(
        mapped(double_td_target, reward, next_online, next_online, terminated, discount=discount),
        reward + np.float32(discount) * follows,
    )


def the_choice_has_no_gradient(reward, next_online, next_target, terminated, *, discount):
    _, to_online, to_target = finite_grad(
        double_td_target, reward, next_online, next_target, terminated, discount=discount
    )
    assert not np.any(to_online)
    assert not np.any(np.asarray(to_target)[terminated])


def regularised_by_cases(
    reward, next_values, policy, log, terminated, truncated, *, discount, weight
):
    targets = []
    for i, r in enumerate(reward):
        distance = 0.0 if truncated[i] else np.sum((policy[i] - log[i]) ** 2)
        follows = min(next_values[:, i]) - weight * distance
        targets.append(r if terminated[i] else r + discount * follows)
    return np.asarray(targets)


def no_penalty_is_the_clipped_double_target(
    reward, next_values, policy, log, terminated, truncated, *, discount, weight
):
    rest = policy, log, terminated, truncated
    assert_close(
        mapped(regularised_td_target, reward, next_values, *rest, discount=discount, weight=0.0),
        mapped(clipped_double_td_target, reward, next_values, terminated, discount=discount),
    )


def the_episode_boundary_is_masked(
    reward, next_values, policy, log, terminated, truncated, *, discount, weight
):
    options = {"discount": discount, "weight": weight}
    wild = np.where((terminated | truncated)[..., None], np.float32(np.nan), log)
    rest = terminated, truncated
    assert_close(
        mapped(regularised_td_target, reward, next_values, policy, wild, *rest, **options),
        mapped(regularised_td_target, reward, next_values, policy, log, *rest, **options),
    )


ONE_FAR = np.tile([0.0, 0.35009196], (7, 1))
ZEROS, FAR, NO = np.zeros(7), np.full(7, 1e6), np.zeros(7, bool)
HALF = {"discount": 0.5}
PENALISED = {"discount": 0.5, "weight": 1.0}
UNIT = reals(-1, 1)
BATCH = (
    jnp.ones(3),
    jnp.ones((2, 3)),
    jnp.ones((3, 2)),
    jnp.ones((3, 2)),
    jnp.zeros(3, bool),
    jnp.zeros(3, bool),
)

ROWS = [
    Row(
        double_td_target,
        sample=st.tuples(rows(7), rows(7, 3), rows(7, 3), flags(7)),
        options=DISCOUNT,
        oracle=double_by_cases,
        laws=[one_network_takes_the_largest, the_choice_has_no_gradient],
        edges=[
            Edge((ZEROS, np.zeros((7, 3)), np.zeros((7, 3)), NO), HALF),
            Edge((np.zeros(0), np.zeros((0, 3)), np.zeros((0, 3)), np.zeros(0, bool)), HALF),
        ],
        refuses=[
            Refusal(
                "next_online and next_target must have one shape",
                (jnp.ones(2), jnp.ones((2, 3)), jnp.ones((2, 2)), jnp.zeros(2, bool)),
                HALF,
            ),
            Refusal("last axis", (jnp.ones(2), jnp.ones(2), jnp.ones(2), jnp.zeros(2, bool)), HALF),
            Refusal(
                "at least one choice",
                (jnp.ones(2), jnp.ones((2, 0)), jnp.ones((2, 0)), jnp.zeros(2, bool)),
                HALF,
            ),
            Refusal(
                "reward and next_value must have one shape",
                (jnp.ones(3), jnp.ones((2, 3)), jnp.ones((2, 3)), jnp.zeros(3, bool)),
                HALF,
            ),
        ],
    ),
    Row(
        regularised_td_target,
        sample=st.tuples(
            rows(7),
            rows(2, 7),
            rows(7, 2, elements=UNIT),
            rows(7, 2, elements=UNIT),
            flags(7),
            flags(7),
        ),
        options=st.fixed_dictionaries({"discount": SHARE, "weight": reals(0, 10)}),
        oracle=regularised_by_cases,
        laws=[no_penalty_is_the_clipped_double_target, the_episode_boundary_is_masked],
        edges=[
            Edge((ZEROS, np.zeros((2, 7)), *[np.zeros((7, 2))] * 2, NO, NO), PENALISED),
            Edge((ZEROS, np.zeros((2, 7)), *[np.ones((7, 2))] * 2, ~NO, ~NO), PENALISED),
            Edge((ZEROS[:0], np.zeros((2, 0)), *[np.ones((0, 2))] * 2, NO[:0], NO[:0]), PENALISED),
            # Equal members, where a difference that is computed twice may be rounded in two ways.
            Edge(
                (
                    ZEROS,
                    np.full((2, 7), 2.0),
                    np.zeros((7, 2)),
                    ONE_FAR,
                    NO,
                    NO,
                ),
                {"discount": 0.5, "weight": 1.71875},
            ),
        ],
        refuses=[
            Refusal(
                "next_policy_action and next_logged_action must have one shape",
                (*BATCH[:3], jnp.ones((3, 1)), *BATCH[4:]),
                PENALISED,
            ),
            Refusal(
                "last axis of channels", (*BATCH[:2], *[jnp.ones(3)] * 2, *BATCH[4:]), PENALISED
            ),
            Refusal("ensemble member", (BATCH[0], jnp.ones(3), *BATCH[2:]), PENALISED),
            *(
                Refusal(
                    "next_values needs a first axis of at least one ensemble member before the "
                    f"axes of reward, got shape {shape} for reward of (3,); for one critic add the "
                    "axis with next_values[None]",
                    (BATCH[0], jnp.ones(shape), *BATCH[2:]),
                    PENALISED,
                )
                for shape in ((2, 1), (2, 4), (0, 3))
            ),
            *(
                Refusal(
                    f"reward and {('terminated', 'truncated')[place - 4]} must have one shape, got "
                    "(3,) and (2,); index or reshape one of them, nothing is broadcast here",
                    (*BATCH[:place], jnp.zeros(2, bool), *BATCH[place + 1 :]),
                    PENALISED,
                )
                for place in (4, 5)
            ),
            Refusal(
                "weight must be finite and not negative", BATCH, {"discount": 0.5, "weight": -1.0}
            ),
            Refusal("discount must be in [0, 1]", BATCH, {"discount": 1.5, "weight": 1.0}),
        ],
    ),
]
