import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.costs import (
    discounted_cost_limit,
    discounted_cost_target,
    reachability_target,
    step_cost_limit,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    flags,
    mapped,
    reals,
    rows,
)

SHARE = reals(0, 1)
DISCOUNT = SHARE.map(lambda discount: {"discount": discount})
LIMITS = rows(2, elements=reals(0, 100))
HORIZON = st.sampled_from([1, 7, 300])


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
