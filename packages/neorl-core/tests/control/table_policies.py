import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.control import BaseStock, ConstantPolicy, StateFeedback, UniformPolicy
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    keys,
    mapped,
    reals,
    rows,
)

ACT, OBS = 2, 3
RAW_KEY = np.zeros(2, np.uint32)


def feedback_step(gain, setpoint, bias, obs):
    policy = StateFeedback(gain, setpoint, bias, jnp.full(ACT, -50.0), jnp.full(ACT, 50.0))
    _, action = policy(policy.sent(policy.initial_carry(), bias), obs)
    return action


def feedback_by_loops(gain, setpoint, bias, obs):
    wanted = [
        b - sum(k * (y - r) for k, y, r in zip(row, obs, setpoint, strict=True))
        for row, b in zip(gain, bias, strict=True)
    ]
    return np.clip(wanted, -50, 50)


def at_the_setpoint_it_rests(gain, setpoint, bias, obs):
    assert_close(mapped(feedback_step, gain, setpoint, bias, setpoint), np.clip(bias, -50, 50))


def order(level, position, obs):
    policy = BaseStock(level, position, jnp.zeros(ACT), jnp.full(ACT, 60.0))
    _, action = policy(policy.sent(policy.initial_carry(), level), obs)
    return action


def order_by_loops(level, position, obs):
    have = [sum(w * y for w, y in zip(row, obs, strict=True)) for row in position]
    return np.asarray([min(max(s - h, 0.0), 60.0) for s, h in zip(level, have, strict=True)])


def ordering_restores_the_level(level, position, obs):
    """Where no bound is met, position plus order is the level."""
    placed = np.asarray(mapped(order, level, position, obs))
    have = np.einsum("rao,ro->ra", position.astype(np.float64), obs)
    inside = (placed > 0) & (placed < 60)
    np.testing.assert_allclose((have + placed)[inside], level[inside], rtol=1e-3, atol=1e-2)


def constant(action, obs, key):
    policy = ConstantPolicy(action)
    return policy(policy.sent(policy.initial_carry(), obs), obs, key)[1]


def the_action(action, obs, key):
    return action


def blind(action, obs, key):
    np.testing.assert_array_equal(mapped(constant, action, obs + 1, key), action)


def uniform(low, obs, key):
    policy = UniformPolicy(low, low + 2.0)
    return policy(policy.sent(policy.initial_carry(), obs), obs, key)[1]


def within_the_bounds(low, obs, key):
    action = np.asarray(mapped(uniform, low, obs, key))
    assert np.all((action >= low) & (action <= low + 2.0))
    np.testing.assert_array_equal(mapped(uniform, low, obs + 1, key), action)


def each(name, count, things, shape):
    """The refusal of a field that has not one number for each of some things."""
    return (
        f"{name} must have one number for each of the {count} {things}, "
        f"got shape {shape}; give it the shape ({count},)"
    )


ROWS = [
    Row(
        feedback_step,
        name="StateFeedback",
        sample=st.tuples(rows(ACT, OBS, elements=reals(-5, 5)), rows(OBS), rows(ACT), rows(OBS)),
        oracle=feedback_by_loops,
        laws=[at_the_setpoint_it_rests],
        exempt={"dtype": "the limits of the sample are float32"},
        edges=[Edge((np.ones((2, 3)), np.zeros(3), np.full(2, 50.0), np.zeros(3)))],
        refuses=[
            Refusal(
                each("obs", 3, "columns of gain", "(4, 3)"),
                (jnp.ones((2, 3)), jnp.ones(3), jnp.ones(2), jnp.ones((4, 3))),
            ),
            Refusal(
                each("setpoint", 3, "columns of gain", "(1,)"),
                (jnp.ones((2, 3)), jnp.ones(1), jnp.ones(2), jnp.ones(3)),
            ),
            Refusal(
                each("bias", 2, "rows of gain", "(3,)"),
                (jnp.ones((2, 3)), jnp.ones(3), jnp.ones(3), jnp.ones(3)),
            ),
            Refusal(
                each("low", 1, "actions", "(2,)"),
                (jnp.ones((1, 3)), jnp.ones(3), jnp.ones(1), jnp.ones(3)),
            ),
            Refusal(
                "gain must have the axes (act, obs), got shape (3,); add the missing axes",
                (jnp.ones(3), jnp.ones(3), jnp.ones(2), jnp.ones(3)),
            ),
        ],
        atol=1e-5,
    ),
    Row(
        order,
        name="BaseStock",
        sample=st.tuples(
            rows(ACT), rows(ACT, OBS, elements=st.sampled_from([-1.0, 0.0, 1.0])), rows(OBS)
        ),
        oracle=order_by_loops,
        laws=[ordering_restores_the_level],
        exempt={"dtype": "the limits of the sample are float32"},
        edges=[Edge((np.zeros(2), np.ones((2, 3)), np.zeros(3)))],
        refuses=[
            Refusal(
                each("obs", 3, "columns of position", "(4,)"),
                (jnp.ones(2), jnp.ones((2, 3)), jnp.ones(4)),
            ),
            Refusal(
                each("level", 2, "rows of position", "(1,)"),
                (jnp.ones(1), jnp.ones((2, 3)), jnp.ones(3)),
            ),
            Refusal(
                each("low", 1, "actions", "(2,)"),
                (jnp.ones(1), jnp.ones((1, 3)), jnp.ones(3)),
            ),
            Refusal(
                "position must have the axes (act, obs), got shape (3,); add the missing axes",
                (jnp.ones(1), jnp.ones(3), jnp.ones(3)),
            ),
        ],
    ),
    Row(
        constant,
        name="ConstantPolicy",
        sample=st.tuples(rows(ACT), rows(OBS), keys()),
        oracle=the_action,
        laws=[blind],
        exempt={"integers": "what it is given comes back as it is"},
        edges=[
            Edge((np.zeros(ACT), np.zeros(OBS), RAW_KEY)),
            Edge((np.full(ACT, 1e30), np.full(OBS, -1e30), RAW_KEY)),
            Edge((np.zeros(0), np.zeros(0), RAW_KEY)),
        ],
        refuses=[
            Refusal(
                "action must have the axes (act), got shape (); add the missing axes",
                (jnp.ones(()), jnp.ones(3), jax.random.key(0)),
            )
        ],
    ),
    Row(
        uniform,
        name="UniformPolicy",
        sample=st.tuples(rows(ACT), rows(OBS), keys()),
        oracle=None,
        exempt={"oracle": "a draw; its distribution is tested in test_distributions.py"},
        laws=[within_the_bounds],
        edges=[
            Edge((np.zeros(ACT), np.zeros(OBS), RAW_KEY)),
            Edge((np.full(ACT, 1e30), np.zeros(OBS), RAW_KEY)),  # The width is below one rounding.
            Edge((np.zeros(0), np.zeros(0), RAW_KEY)),
        ],
        refuses=[
            Refusal(
                "low must have the axes (act), got shape (2, 1); for a batch of them use jax.vmap",
                (jnp.ones((2, 1)), jnp.ones(3), jax.random.key(0)),
            ),
            *(
                Refusal(
                    "low must not be above high, nor infinitely far below, got "
                    f"[{end}] and [{end}]; give the range of every action",
                    (jnp.asarray([end]), jnp.ones(3), jax.random.key(0)),
                )
                for end in (jnp.inf, jnp.nan)
            ),
        ],
    ),
]
