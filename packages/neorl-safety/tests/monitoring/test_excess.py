"""What is checked of an action, against plain Python, and against the guard that keeps it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import Channel, Spec
from neorl_safety.constraints import Tier, declared_constraints
from neorl_safety.filters import Context, Flag, filter_action
from neorl_safety.monitoring import checked_constraints, constraint_excess, seconds_held

SPEC = Spec(
    obs=(Channel("level", "m", 0.0, 2.0),),
    action=(Channel("a", "%", 0.0, 100.0), Channel("b", "%", 0.0, 100.0)),
    cost=(),
    dt=10.0,
    horizon=50,
)
PER = {"value": 1.0, "per": "%"}
RECORDS = [
    {"kind": "box", "channel": "a", "unit": "%", "low": 10.0, "high": 90.0},
    {"kind": "rate", "channel": "a", "unit": "%", "up": 1.0, "down": 2.0},
    {"kind": "interlock", "obs": "level", "obs_unit": "m", "below": None, "above": 1.5,
     "channel": "b", "unit": "%", "low": 0.0, "high": 20.0},
    {"kind": "linear", "sum": {"a": PER, "b": PER}, "at_most": 120.0, "plus": {}},
    {"kind": "deadband", "channel": "b", "unit": "%", "width": 2.0},
]  # fmt: skip
LIMITS = declared_constraints(SPEC, RECORDS)
ONE = jax.jit(jax.vmap(lambda x, v, u: constraint_excess(LIMITS, x, v, u, jnp.float32(10.0))))


def by_hand(level, before, action):
    """The excess of every constraint in the order of its name, in plain Python."""
    (va, vb), (a, b) = before, action
    low, high = min(10.0, va + 10.0), max(90.0, va - 20.0)
    lock = max(-b, b - 20.0) if level > 1.5 else -np.inf
    moved = abs(b - vb)
    return [
        max(low - a, a - high),
        max(-b, b - 100.0),
        max(va - 20.0 - a, a - va - 10.0),
        -np.inf,
        -np.inf,
        lock,
        a + b - 120.0,
        -np.inf,
        moved if moved < 2.0 else -np.inf,
    ]


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(3)
    obs = rng.uniform(0, 2, (400, 1)).astype(np.float32)
    before = rng.uniform(0, 100, (400, 2)).astype(np.float32)
    near = before + rng.normal(0, 8, (400, 2)).astype(np.float32)
    return obs, before, near.astype(np.float32)


def test_every_constraint_is_checked_by_name_and_tier():
    result = checked_constraints(LIMITS)
    names = [one.name for one in result]
    assert names == [
        "a: range", "b: range", "a: rate", "b: rate", "a: interlock", "b: interlock",
        "linear 1", "a: deadband", "b: deadband",
    ]  # fmt: skip
    assert [one.tier for one in result] == [Tier.HARD] * 7 + [Tier.PREFERENCE] * 2
    assert result[2].description == "rises by at most 1, falls by at most 2 % per second"


def test_the_excess_is_that_of_plain_python(drawn):
    obs, before, action = drawn
    actual = np.asarray(ONE(obs, before, action), np.float64)
    expected = np.array([by_hand(*row) for row in zip(obs[:, 0], before, action, strict=True)])
    assert (np.isneginf(actual) == np.isneginf(expected)).all()
    finite = np.isfinite(expected)
    np.testing.assert_allclose(actual[finite], expected[finite], atol=2e-3)
    assert ((actual > 0).sum(axis=0)[[0, 1, 2, 5, 6, 8]] > 10).all()


def test_a_request_that_breaks_them_is_seen_and_what_the_filter_lets_pass_never_is(drawn):
    obs, before, action = drawn

    @jax.jit
    @jax.vmap
    def filtered(x, v, u):
        return filter_action(LIMITS, Context(x, v, jnp.float32(10.0), v), u)

    applied, report = filtered(obs, before, action)
    kept = (np.asarray(report.flags) & int(Flag.ROWS_INFEASIBLE | Flag.INTERVAL_EMPTY)) == 0
    assert kept.sum() > 300
    hard = [i for i, one in enumerate(checked_constraints(LIMITS)) if one.tier is Tier.HARD]
    after = np.asarray(ONE(obs, before, applied))[kept][:, hard]
    assert after.max() <= 0
    assert (np.asarray(ONE(obs, before, action))[kept][:, hard] > 0).any(axis=1).sum() > 100


def test_an_action_that_is_not_finite_breaks_everything_and_an_unknown_start_no_rate():
    nan = jnp.full((1, 2), jnp.nan)
    level = jnp.array([[1.0]])
    assert (np.asarray(ONE(level, jnp.full((1, 2), 50.0), nan)) == np.inf).all()
    result = np.asarray(ONE(level, nan, jnp.array([[90.0, 0.0]])))[0]
    assert result[2] == -np.inf
    assert result[0] == 0


def test_a_move_within_a_rest_is_seen_unless_the_fallback_makes_it():
    limits = declared_constraints(SPEC, [{"kind": "rest", "channel": "a", "seconds": 30.0}])
    name = [one.name for one in checked_constraints(limits)].index("a: rest")
    applied = jnp.array([[50.0], [50.0], [90.0], [90.0], [60.0], [60.0], [60.0], [70.0]])
    applied = jnp.concatenate([applied, 0 * applied], axis=1)
    held = seconds_held(applied, 10.0)
    assert held[:, 0].tolist() == [np.inf, np.inf, np.inf, 10.0, 20.0, 10.0, 20.0, 30.0]
    judge = jax.vmap(
        lambda v, u, since, acts: constraint_excess(
            limits, jnp.ones(1), v, u, jnp.float32(10.0), since, acts
        )
    )
    result = judge(applied[:-1], applied[1:], held[1:], jnp.ones(7, bool))[:, name]
    # The fall by 30 % after 20 s is too soon; the moves after infinity and after 30 s are not.
    assert result.tolist() == [-np.inf, -np.inf, 0.0, 30.0, 0.0, 0.0, -np.inf]
    result = judge(applied[:-1], applied[1:], held[1:], jnp.zeros(7, bool))[:, name]
    assert np.isneginf(result).all()


def test_a_tripped_interlock_beside_the_box_is_judged_in_place_of_the_box():
    records = [
        {"kind": "box", "channel": "b", "unit": "%", "low": 40.0, "high": 90.0},
        RECORDS[2] | {"high": 0.0},
    ]
    limits = declared_constraints(SPEC, records)
    names = [one.name for one in checked_constraints(limits)]
    unknown, dt = jnp.full(2, jnp.nan), jnp.float32(10.0)

    def excess_of(level, b):
        result = constraint_excess(limits, jnp.array([level]), unknown, jnp.array([0.0, b]), dt)
        return float(result[names.index("b: range")]), float(result[names.index("b: interlock")])

    assert excess_of(1.9, 0.0) == (-np.inf, 0.0)
    assert excess_of(1.9, 50.0) == (-np.inf, 50.0)
    assert excess_of(1.0, 0.0) == (40.0, -np.inf)
