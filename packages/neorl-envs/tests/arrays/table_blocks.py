"""Disturbances and choices of a closed loop, beside the same mathematics in NumPy."""

import math

import numpy as np
from hypothesis import strategies as st

from neorl_core.testing import Edge, Row, flags, mapped, reals, rows
from neorl_envs.blocks import autoregressive, no_feedforward, random_step
from neorl_envs.closed_loop import where_over

PERIODS = reals(0.125, 8)


def ornstein_uhlenbeck(value, normal, *, sd, memory, dt):
    a = math.exp(-dt / memory)
    return a * value + sd * math.sqrt(1 - a**2) * normal


def two_half_steps_decay_like_one(value, normal, *, sd, memory, dt):
    still = np.zeros_like(normal)
    options = {"sd": sd, "memory": memory}
    half = mapped(autoregressive, value, still, dt=dt / 2, **options)
    twice = mapped(autoregressive, np.asarray(half), still, dt=dt / 2, **options)
    whole = mapped(autoregressive, value, still, dt=dt, **options)
    np.testing.assert_allclose(twice, whole, rtol=1e-5, atol=1e-6)


def steps_if_due(value, candidate, uniform, *, every, dt):
    return np.where(uniform < -math.expm1(-dt / every), candidate, value)


def never_without_steps(value, candidate, uniform, *, every, dt):
    held = mapped(random_step, value, candidate, uniform, every=math.inf, dt=dt)
    np.testing.assert_array_equal(held, value)


def either(over, then, otherwise):
    return then if over else otherwise


def the_same_of_equals(over, then, otherwise):
    np.testing.assert_array_equal(mapped(where_over, over, then, then), then)


def feedforward(obs):
    return no_feedforward((), obs)


def zero_for_all(obs):
    np.testing.assert_array_equal(mapped(feedforward, obs), 0)


ROWS = [
    Row(autoregressive, st.tuples(rows(3), rows(3)), ornstein_uhlenbeck,
        laws=[two_half_steps_decay_like_one],
        options=st.fixed_dictionaries(
            {"sd": reals(0, 5), "memory": reals(0.5, 50), "dt": PERIODS})),
    Row(random_step, st.tuples(rows(3), rows(3), rows(3, elements=reals(0, 0.99))), steps_if_due,
        laws=[never_without_steps],
        options=st.fixed_dictionaries({"every": reals(0.5, 50), "dt": PERIODS}),
        exempt={"slope": "a level steps or stays, as a random number decides"}),
    Row(where_over, st.tuples(flags(), rows(3), rows(3)), either, laws=[the_same_of_equals],
        edges=[Edge((np.True_, np.zeros(0), np.zeros(0)))]),
    Row(feedforward, st.tuples(rows(3)), lambda obs: 0.0, laws=[zero_for_all],
        name="no_feedforward"),
]  # fmt: skip
