"""Functions of arrays in networks and learning, beside the same mathematics in NumPy."""

import math

import numpy as np
from hypothesis import strategies as st

from neorl_agents.critics import horizon_targets
from neorl_agents.learning import cosine, held_actions, linear, weight_metrics
from neorl_agents.networks import gelu, identity, largest, layer_norm, relu, step_features, tanh
from neorl_core.testing import Edge, Row, flags, integers, mapped, reals, rows

X = st.tuples(rows(7))
NO_GRADIENT_AT_A_KINK = {"slope": "the slope jumps, and a drawn number may lie beside the jump"}


def tanh_gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def one_hot_of_the_largest(x):
    return np.where(np.arange(x.size) == np.argmax(x), 1.0, -1.0)


def positive_part_and_rest(x):
    np.testing.assert_array_equal(np.asarray(mapped(relu, x)) - mapped(relu, -x), x)


def nearly_the_positive_part(x):
    away = np.abs(np.asarray(mapped(gelu, x)) - np.maximum(x, 0))
    assert away.max() <= 0.171


def odd_and_bounded(x):
    y = np.asarray(mapped(tanh, x))
    np.testing.assert_array_equal(y, -np.asarray(mapped(tanh, -x)))
    assert np.abs(y).max(initial=0) <= 1


def unchanged(x):
    np.testing.assert_array_equal(mapped(identity, x), x)


def one_is_chosen_whatever_is_added(x):
    y = np.asarray(mapped(largest, x))
    assert np.all(np.sum(y == 1, axis=-1) == 1)
    np.testing.assert_array_equal(y, mapped(largest, 2 * x))


def normalised(x, gain, shift):
    return gain * (x - x.mean()) / np.sqrt(x.var() + 1e-6) + shift


def mean_is_that_of_the_shift(x, gain, shift):
    ones, zeros = np.ones_like(gain), np.zeros_like(shift)
    y = np.asarray(mapped(layer_norm, x, ones, zeros))
    assert np.abs(y.mean(axis=-1)).max() < 1e-4


def side_by_side(obs, action, obs_known, action_known):
    return np.concatenate([obs * obs_known, action * action_known, [obs_known, action_known]])


def unknown_values_do_not_count(obs, action, obs_known, action_known):
    nothing = np.zeros_like(obs_known)
    one = mapped(step_features, obs, action, nothing, nothing)
    np.testing.assert_array_equal(one, mapped(step_features, obs + 1, action - 1, nothing, nothing))


def heads_by_recursion(counted, next_values, follows, *, quantity, discount):
    targets = np.zeros_like(next_values)
    for cost, x in enumerate(counted):
        for head in range(next_values.shape[-1]):
            rest = next_values[cost, head - 1] if head and follows else 0.0
            scale = 1 - x if quantity == "violation" else 1.0
            targets[cost, head] = x + scale * discount * rest
    return targets


def the_first_head_is_the_step_itself(counted, next_values, follows, *, quantity, discount):
    targets = mapped(
        horizon_targets, counted, next_values, follows, quantity=quantity, discount=discount
    )
    np.testing.assert_array_equal(targets[..., 0], counted)


def falling_cosine(step, updates):
    return (1 + math.cos(math.pi * min(step / updates, 1))) / 2 if updates else 1.0


def falling_line(step, updates, final):
    return 1 + (final - 1) * min(step / updates, 1) if updates else 1.0


def ends_where_it_should(step, updates):
    long = np.maximum(updates, 1)
    np.testing.assert_allclose(mapped(cosine, 0 * step, long), 1, rtol=1e-6)
    np.testing.assert_allclose(mapped(cosine, long, long), 0, atol=1e-6)


def ends_at_the_factor(step, updates, final):
    long = np.maximum(updates, 1)
    np.testing.assert_allclose(mapped(linear, long + step, long, final), final, atol=1e-6)


def kish(weights, mask, max_weight):
    w = weights[mask]
    n, square = max(w.size, 1), np.sum(np.square(w))
    share = np.sum(w) ** 2 / (n * square) if square else 0.0
    return {"effective_sample": share, "at_ceiling": np.sum(w >= max_weight * (1 - 1e-6)) / n}


def equal_weights_are_all_effective(weights, mask, max_weight):
    some = mask | (np.arange(mask.shape[-1]) == 0)
    one = mapped(weight_metrics, np.ones_like(weights), some, max_weight)
    np.testing.assert_allclose(one["effective_sample"], 1, rtol=1e-5)


def held_by_counting(action, logged, mask):
    held = (np.abs(action) >= 1 - 1e-3) & (np.abs(logged) <= 0.99)
    return held[mask].mean() if mask.any() else 0.0


def nothing_is_held_inside(action, logged, mask):
    assert not np.asarray(mapped(held_actions, action / 2, logged, mask)).any()


COUNTS = integers(low=0, high=50)
UNIT = st.sampled_from([-1.0, -0.9995, -0.3, 0.0, 0.7, 1.0])

ROWS = [
    Row(relu, X, lambda x: np.maximum(x, 0), laws=[positive_part_and_rest],
        edges=[Edge((np.zeros(2),))], exempt=NO_GRADIENT_AT_A_KINK),
    Row(gelu, X, tanh_gelu, laws=[nearly_the_positive_part]),
    Row(tanh, st.tuples(rows(7, elements=reals(-5, 5))), np.tanh, laws=[odd_and_bounded]),
    Row(identity, X, lambda x: x, laws=[unchanged]),
    Row(largest, X, one_hot_of_the_largest, laws=[one_is_chosen_whatever_is_added],
        differentiable=False, edges=[Edge((np.zeros(3),))]),
    Row(layer_norm, st.tuples(rows(7), rows(7), rows(7)), normalised,
        laws=[mean_is_that_of_the_shift], edges=[Edge((np.ones(3), np.ones(3), np.zeros(3)))]),
    Row(step_features, st.tuples(rows(3), rows(2), flags(), flags()), side_by_side,
        laws=[unknown_values_do_not_count]),
    Row(horizon_targets, st.tuples(rows(2, elements=reals(0, 1)), rows(2, 3), flags()),
        heads_by_recursion, laws=[the_first_head_is_the_step_itself],
        options=st.fixed_dictionaries({
            "quantity": st.sampled_from(["violation", "cost"]), "discount": reals(0.0, 1.0),
        })),
    Row(cosine, st.tuples(COUNTS, COUNTS), falling_cosine, laws=[ends_where_it_should],
        differentiable=False),
    Row(linear, st.tuples(COUNTS, COUNTS, rows(elements=reals(0, 2))), falling_line,
        laws=[ends_at_the_factor]),
    Row(weight_metrics,
        st.tuples(rows(7, elements=reals(0, 3)), flags(7), rows(elements=reals(1, 3))), kish,
        laws=[equal_weights_are_all_effective], differentiable=False,
        edges=[Edge((np.zeros(3), np.ones(3, bool), np.ones(())))]),
    Row(held_actions, st.tuples(rows(7, 2, elements=UNIT), rows(7, 2, elements=UNIT), flags(7)),
        held_by_counting, laws=[nothing_is_held_inside], differentiable=False),
]  # fmt: skip
