import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.costs import (
    discounted_cost_limit,
    discounted_cost_target,
    reachability_target,
    step_cost_limit,
)
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
LIMITS = rows(2, elements=reals(0, 100))
HORIZON = st.sampled_from([1, 7, 300])


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


def no_price_is_the_clipped_double_target(
    reward, next_values, policy, log, terminated, truncated, *, discount, weight
):
    rest = policy, log, terminated, truncated
    assert_close(
        mapped(regularised_td_target, reward, next_values, *rest, discount=discount, weight=0.0),
        mapped(clipped_double_td_target, reward, next_values, terminated, discount=discount),
    )


def the_seam_is_masked(
    reward, next_values, policy, log, terminated, truncated, *, discount, weight
):
    options = {"discount": discount, "weight": weight}
    wild = np.where((terminated | truncated)[..., None], np.float32(np.nan), log)
    rest = terminated, truncated
    assert_close(
        mapped(regularised_td_target, reward, next_values, policy, wild, *rest, **options),
        mapped(regularised_td_target, reward, next_values, policy, log, *rest, **options),
    )


def cost_by_cases(cost, next_values, terminated, *, discount):
    return np.asarray(
        [
            c if ended else c + discount * max(values)
            for c, values, ended in zip(cost, next_values.T, terminated, strict=True)
        ]
    )


def a_trip_stops_and_nothing_leaks(cost, next_values, terminated, *, discount):
    wild = np.where(terminated[:, None, :], np.float32(np.nan), next_values)
    assert_close(
        mapped(discounted_cost_target, cost, wild, terminated, discount=discount),
        mapped(discounted_cost_target, cost, next_values, terminated, discount=discount),
    )


def another_member_only_raises(cost, next_values, terminated, *, discount):
    few = mapped(discounted_cost_target, cost, next_values[:, :1], terminated, discount=discount)
    all_ = mapped(discounted_cost_target, cost, next_values, terminated, discount=discount)
    assert np.all(np.asarray(all_) >= np.asarray(few) - 1e-5)


def reachability_by_cases(constraint, next_value, terminated, *, discount):
    return np.asarray(
        [
            h if ended else (1 - discount) * h + discount * max(h, value)
            for h, value, ended in zip(constraint, next_value, terminated, strict=True)
        ]
    )


def never_below_the_constraint(constraint, next_value, terminated, *, discount):
    target = mapped(reachability_target, constraint, next_value, terminated, discount=discount)
    assert np.all(np.asarray(target) >= constraint - 1e-4)


def monotone_in_the_next_value(constraint, next_value, terminated, *, discount):
    low = mapped(reachability_target, constraint, next_value, terminated, discount=discount)
    high = mapped(reachability_target, constraint, next_value + 1, terminated, discount=discount)
    assert np.all(np.asarray(high) >= np.asarray(low) - 1e-4)


def shared_evenly(limit, *, horizon):
    return np.asarray([value / horizon for value in limit])


def adds_up_to_the_limit(limit, *, horizon):
    assert_close(horizon * mapped(step_cost_limit, limit, horizon=horizon), limit)


def discounted_sum_of_even_costs(limit, *, horizon, discount):
    return sum(discount**step * limit / horizon for step in range(horizon))


def between_one_step_and_all(limit, *, horizon, discount):
    result = np.asarray(mapped(discounted_cost_limit, limit, horizon=horizon, discount=discount))
    assert np.all(result >= limit / horizon - 1e-4)
    assert np.all(result <= limit * (1 + 1e-5) + 1e-5)


ZEROS, FAR, NO = np.zeros(7), np.full(7, 1e6), np.zeros(7, bool)
HALF = {"discount": 0.5}
PRICED = {"discount": 0.5, "weight": 1.0}
UNIT = reals(-1, 1)
BATCH = (
    jnp.ones(3),
    jnp.ones((2, 3)),
    jnp.ones((3, 2)),
    jnp.ones((3, 2)),
    jnp.zeros(3, bool),
    jnp.zeros(3, bool),
)
TIMES = {"discount": 0.5, "horizon": 10}


def shape_refusals(name, words, good, bad, no):
    return [
        Refusal(words, (jnp.ones(3), bad, no), HALF),
        Refusal(
            f"{name} and terminated must have one shape",
            (jnp.ones(3), good, jnp.zeros(2, bool)),
            HALF,
        ),
        Refusal("discount must be in [0, 1]", (jnp.ones(3), good, no), {"discount": 1.01}),
    ]


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
        laws=[no_price_is_the_clipped_double_target, the_seam_is_masked],
        edges=[
            Edge((ZEROS, np.zeros((2, 7)), *[np.zeros((7, 2))] * 2, NO, NO), PRICED),
            Edge((ZEROS, np.zeros((2, 7)), *[np.ones((7, 2))] * 2, ~NO, ~NO), PRICED),
            Edge((ZEROS[:0], np.zeros((2, 0)), *[np.ones((0, 2))] * 2, NO[:0], NO[:0]), PRICED),
        ],
        refuses=[
            Refusal(
                "next_policy_action and next_logged_action must have one shape",
                (*BATCH[:3], jnp.ones((3, 1)), *BATCH[4:]),
                PRICED,
            ),
            Refusal("last axis of channels", (*BATCH[:2], *[jnp.ones(3)] * 2, *BATCH[4:]), PRICED),
            Refusal("ensemble member", (BATCH[0], jnp.ones(3), *BATCH[2:]), PRICED),
            *(
                Refusal(
                    "next_values needs a first axis of at least one ensemble member before the "
                    f"axes of reward, got shape {shape} for reward of (3,); for one critic add the "
                    "axis with next_values[None]",
                    (BATCH[0], jnp.ones(shape), *BATCH[2:]),
                    PRICED,
                )
                for shape in ((2, 1), (2, 4), (0, 3))
            ),
            *(
                Refusal(
                    f"reward and {('terminated', 'truncated')[place - 4]} must have one shape, got "
                    "(3,) and (2,); index or reshape one of them, nothing is broadcast here",
                    (*BATCH[:place], jnp.zeros(2, bool), *BATCH[place + 1 :]),
                    PRICED,
                )
                for place in (4, 5)
            ),
            Refusal(
                "weight must be finite and not negative", BATCH, {"discount": 0.5, "weight": -1.0}
            ),
            Refusal("discount must be in [0, 1]", BATCH, {"discount": 1.5, "weight": 1.0}),
        ],
    ),
    Row(
        discounted_cost_target,
        sample=st.tuples(rows(7), rows(2, 7), flags(7)),
        options=DISCOUNT,
        oracle=cost_by_cases,
        laws=[a_trip_stops_and_nothing_leaks, another_member_only_raises],
        edges=[
            Edge((ZEROS, np.zeros((2, 7)), NO), {"discount": 1.0}),
            Edge((np.zeros(0), np.zeros((2, 0)), np.zeros(0, bool)), HALF),
        ],
        refuses=[
            *shape_refusals(
                "cost",
                "one ensemble member before the axes of cost",
                jnp.ones((2, 3)),
                jnp.ones(3),
                jnp.zeros(3, bool),
            ),
            Refusal(
                "at least one ensemble member",
                (jnp.ones(3), jnp.ones((0, 3)), jnp.zeros(3, bool)),
                HALF,
            ),
        ],
    ),
    Row(
        reachability_target,
        sample=st.tuples(rows(7), rows(7), flags(7)),
        options=DISCOUNT,
        oracle=reachability_by_cases,
        laws=[never_below_the_constraint, monotone_in_the_next_value],
        edges=[
            Edge((ZEROS, ZEROS, NO), {"discount": 1.0}),
            Edge((FAR, -FAR, NO), {"discount": 0.0}),
            Edge((np.zeros(0), np.zeros(0), np.zeros(0, bool)), HALF),
        ],
        refuses=shape_refusals(
            "constraint",
            "constraint and next_value must have one shape",
            jnp.ones(3),
            jnp.ones(2),
            jnp.zeros(3, bool),
        ),
    ),
    Row(
        step_cost_limit,
        sample=st.tuples(LIMITS),
        options=HORIZON.map(lambda horizon: {"horizon": horizon}),
        oracle=shared_evenly,
        laws=[adds_up_to_the_limit],
        edges=[Edge((np.zeros(2),), {"horizon": 1}), Edge((np.zeros(0),), {"horizon": 3})],
        refuses=[
            Refusal("horizon must be", (jnp.ones(1),), {"horizon": 0}),
            Refusal("horizon must be", (jnp.ones(1),), {"horizon": -5}),
            Refusal("horizon must be", (jnp.ones(1),), {"horizon": 2.5}),
            Refusal("limit must be finite and not negative", (-jnp.ones(1),), {"horizon": 5}),
        ],
    ),
    Row(
        discounted_cost_limit,
        sample=st.tuples(LIMITS),
        options=st.fixed_dictionaries({"horizon": HORIZON, "discount": SHARE}),
        oracle=discounted_sum_of_even_costs,
        laws=[between_one_step_and_all],
        edges=[
            Edge((np.full(2, 10.0),), {"horizon": 300, "discount": 0.99}),
            Edge((np.full(2, 10.0),), {"horizon": 300, "discount": 1.0}),
            Edge((np.full(2, 10.0),), {"horizon": 300, "discount": 0.0}),
            Edge((np.full(2, 10.0),), {"horizon": 300, "discount": float(np.float32(0.99999))}),
            Edge((np.zeros(0),), {"horizon": 3, "discount": 0.5}),
        ],
        refuses=[
            Refusal("horizon must be", (jnp.ones(1),), {"horizon": 0, "discount": 0.5}),
            Refusal("limit must be finite and not negative", (-jnp.ones(1),), TIMES),
            Refusal("discount must be in [0, 1]", (jnp.ones(1),), {"horizon": 3, "discount": -0.5}),
        ],
    ),
]
