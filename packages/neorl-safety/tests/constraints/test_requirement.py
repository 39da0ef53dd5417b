"""Functions of observation and action as requirements: composed, compiled, in three tiers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import Channel, InputError, Spec
from neorl_core.testing import no_recompile
from neorl_safety.constraints import (
    Tier,
    action_constraints,
    constraints_from_dict,
    constraints_to_dict,
    excess,
    penalty,
    requirement,
    with_requirements,
)
from neorl_safety.filters import Context, filter_action
from neorl_safety.monitoring import checked_constraints, constraint_excess

SPEC = Spec(
    obs=(Channel("level", "m", 0.0, 2.0), Channel("T", "K", 280.0, 400.0)),
    action=(Channel("a", "kg/h", 0.0, 100.0), Channel("b", "kg/h", 0.0, 100.0)),
    cost=(),
    dt=10.0,
    horizon=50,
)


def heat(limit, obs, action):
    """Affine in the action, by no means in the observation."""
    return jnp.exp(obs[0]) * action[0] + jnp.sin(obs[1]) * action[1] - limit


def product(limit, obs, action):
    return action[0] * action[1] - limit


def power(limit, obs, action):
    return action[0] + action[1] - limit


HARD = requirement("heat", heat, jnp.float32(90.0), unit="kW", tier=Tier.HARD, weight=2.0)
SOFT = requirement("product", product, jnp.float32(50.0), unit="kg2", tier=Tier.SOFT, weight=0.5)
WISH = requirement("power", power, jnp.float32(20.0), unit="kg/h", tier=Tier.PREFERENCE)
ALL = [HARD, SOFT, WISH]


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(0)
    obs = rng.uniform([0, 280], [2, 400], (500, 2)).astype(np.float32)
    return obs, rng.uniform(0, 100, (500, 2)).astype(np.float32)


@jax.jit
def judged(requirements, obs, action):
    each = jax.vmap(excess, (None, 0, 0)), jax.vmap(penalty, (None, 0, 0))
    return tuple(one(requirements, obs, action) for one in each)


def test_requirements_compose_and_compile_to_what_numpy_says(drawn):
    """Row N18: functions of state and action compose, compile and are told apart by their tier."""
    obs, action = drawn
    actual, paid = judged(ALL, obs, action)
    x, u = obs.astype(np.float64), action.astype(np.float64)
    expected = np.stack([
        np.exp(x[:, 0]) * u[:, 0] + np.sin(x[:, 1]) * u[:, 1] - 90,
        u[:, 0] * u[:, 1] - 50,
        u.sum(axis=1) - 20,
    ], axis=1)  # fmt: skip
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-3)
    over = np.maximum(expected, 0)
    np.testing.assert_allclose(paid, 2 * over[:, 0] + 0.5 * over[:, 1], rtol=1e-4, atol=1e-2)
    swept = [jax.tree.map(lambda leaf: leaf * 2, one) for one in ALL]
    no_recompile(judged, (ALL, obs, action), (swept, obs, action))
    lost = excess(ALL, jnp.array([jnp.nan, 300.0]), jnp.ones(2))
    assert lost[0] == jnp.inf
    assert jnp.isfinite(lost[1:]).all()


def test_the_filter_keeps_what_is_hard_and_lets_soft_and_preferred_be_broken(drawn):
    """Row N18: a filter keeps what is hard and lets soft and preferred requirements be broken."""
    obs, action = drawn
    limits = with_requirements(action_constraints(SPEC), ALL, SPEC)
    low = jnp.zeros(2)

    @jax.jit
    def filtered(limits, obs, action):
        def one(x, u):
            return filter_action(limits, Context(x, low, jnp.float32(10.0), low), u)

        return jax.vmap(one)(obs, action)

    applied, _ = filtered(limits, obs, action)
    before, after = (np.asarray(judged(ALL, obs, u)[0]) for u in (action, applied))
    broken = (before > 0).any(axis=0)
    assert broken.all()
    size = np.exp(obs[:, 0]) * 100 + 190
    assert (after[:, 0] <= 1e-6 * size).all()
    assert (after[:, 1:] > 0).any(axis=0).all()
    kept = before[:, 0] <= -1e-3
    np.testing.assert_array_equal(np.asarray(applied)[kept], action[kept])
    # The check that is told apart from the filter agrees, and knows the tiers by name.
    checked = checked_constraints(limits)
    assert [(one.name, one.tier) for one in checked][-1] == ("function 1", Tier.HARD)
    unknown = jnp.full(2, jnp.nan)
    dt = jnp.float32(10.0)
    apart = jax.jit(jax.vmap(lambda x, u: constraint_excess(limits, x, unknown, u, dt)))
    assert (np.asarray(apart(obs, applied)) <= 0).all()
    wrong = np.asarray(apart(obs, action))[:, -1] > 0
    assert wrong[before[:, 0] > 0.1].all()
    assert not wrong[before[:, 0] < -0.1].any()


def test_what_no_row_keeps_is_refused_as_hard_and_code_is_no_data():
    limits = action_constraints(SPEC)

    def change(one, **fields):
        made = {"unit": "1", "tier": Tier.HARD, **fields}
        return requirement(one.name, one.function, one.parameters, **made)

    with pytest.raises(InputError, match="'product' is not affine in the action"):
        with_requirements(limits, [change(SOFT)], SPEC)
    alone = requirement("still", lambda p, x, u: x[0] - p, jnp.ones(()), unit="m", tier=Tier.HARD)
    with pytest.raises(InputError, match="'still' does not depend on the action"):
        with_requirements(limits, [alone], SPEC)
    nan = requirement("nan", lambda p, x, u: p * u[0], jnp.float32(jnp.nan), unit="m",
                      tier=Tier.HARD)  # fmt: skip
    with pytest.raises(InputError, match="'nan' must return one finite number"):
        with_requirements(limits, [nan], SPEC)
    with pytest.raises(InputError, match="weight must be zero or more"):
        change(SOFT, weight=-1.0)
    with pytest.raises(InputError, match="are Python functions and cannot be written to a file"):
        constraints_to_dict(with_requirements(limits, [HARD], SPEC))
    document = constraints_to_dict(limits)
    document["constraints"].append({"kind": "function", "name": "heat"})
    with pytest.raises(InputError, match="a Python function cannot be read from a file"):
        constraints_from_dict(document)
    assert with_requirements(limits, [SOFT, WISH], SPEC).further == {}
