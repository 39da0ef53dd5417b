"""Formulas while the plant runs: as early as they are decided, against plain Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import Channel, InputError, Spec
from neorl_safety.monitoring import (
    MonitorInput,
    above,
    always,
    below,
    conjunction,
    disjunction,
    eventually,
    formula_monitor,
    negation,
    read_formula,
    until,
)

NAMES = "xyz"
SPEC = Spec(
    obs=tuple(Channel(name, "m", -20.0, 20.0) for name in NAMES),
    action=(Channel("u", "%", 0.0, 1.0),),
    cost=(),
    dt=1.0,
    horizon=60,
)


def watch(formula, rows):
    """Values and alarms of a monitor over the rows."""
    monitor = formula_monitor(formula, SPEC)

    def step(carry, obs):
        return monitor(carry, MonitorInput(obs, jnp.zeros(1), jnp.zeros(1)))

    carry, scores = jax.jit(lambda x: jax.lax.scan(step, monitor.initial_carry(), x))(
        jnp.asarray(rows, jnp.float32)
    )
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(carry))
    return np.asarray(scores.value), np.asarray(scores.alarm)


def bounds(formula, rows, t, now):
    """The least and the largest robustness from ``t`` on that the rows up to ``now`` leave."""
    if formula.operator in ("above", "below"):
        if t > now:
            return -np.inf, np.inf
        x = rows[t][NAMES.index(formula.channel)]
        if np.isnan(x):
            return np.nan, np.nan
        apart = x - formula.threshold
        return (apart, apart) if formula.operator == "above" else (-apart, -apart)
    at = [lambda s, part=part: bounds(part, rows, s, now) for part in formula.parts]
    if formula.operator == "not":
        low, high = at[0](t)
        return -high, -low
    least = lambda pairs: tuple(map(min, zip(*pairs, strict=True)))  # noqa: E731
    most = lambda pairs: tuple(map(max, zip(*pairs, strict=True)))  # noqa: E731
    if formula.operator in ("and", "or"):
        return (least if formula.operator == "and" else most)([f(t) for f in at])
    first, last = formula.window
    steps = range(t + first, t + last + 1)
    if formula.operator in ("always", "eventually"):
        return (least if formula.operator == "always" else most)([at[0](s) for s in steps])
    return most([least([at[1](s), *(at[0](r) for r in range(t, s))]) for s in steps])


def drawn(rng, depth):
    """A formula at random, of all operators."""
    if depth == 0 or rng.random() < 0.15:
        return (above, below)[rng.integers(2)](NAMES[rng.integers(3)], float(rng.normal(0, 0.7)))
    part, other = drawn(rng, depth - 1), drawn(rng, depth - 1)
    first, width = int(rng.integers(0, 4)), int(rng.integers(0, 5))
    return [
        negation(part),
        conjunction(part, other),
        disjunction(part, other),
        always(part, first, first + width),
        eventually(part, first, first + width),
        until(part, other, first, first + width),
    ][rng.integers(6)]


@pytest.mark.parametrize("seed", range(24))
def test_a_drawn_formula_alarms_never_too_early_and_at_the_latest_when_it_is_decided(seed):
    rng = np.random.default_rng([71, seed])
    formula = drawn(rng, 3)
    rows = np.cumsum(rng.normal(0, 0.4, (70, 3)), axis=0).astype(np.float32)
    _, alarm = watch(formula, rows)
    ahead = formula.horizon
    for now in range(len(rows)):
        # A start may count for twice the horizon: that is how long an alarm lasts at most.
        recent = range(max(0, now - 2 * ahead), now + 1)
        decided = any(bounds(formula, rows, t, now)[1] < 0 for t in recent)
        assert not (alarm[now] and not decided)
        if now >= ahead:
            assert alarm[now] or not bounds(formula, rows, now - ahead, now)[1] < 0


AT_ONCE = {
    "always": "always[0 s, 20 s] (x <= 1 m)",
    "of both": "always[0 s, 20 s] (x <= 1 m) and always[3 s, 9 s] (y >= -1 m)",
    "nested": "always[0 s, 10 s] (always[2 s, 6 s] (x <= 1 m) and y >= -1 m)",
    "after a cause": "y >= 1 m implies always[0 s, 12 s] (x <= 1 m)",
    "after a delay": "y >= 1 m implies always[5 s, 12 s] (x <= 1 m)",
    "not eventually": "not eventually[0 s, 20 s] (x >= 1 m)",
    "a comparison": "x <= 1 m",
    "in time": "always[0 s, 20 s] (eventually[0 s, 6 s] (x <= 1 m))",
}


@pytest.mark.parametrize("name", AT_ONCE)
def test_what_is_violated_is_known_in_the_same_step_from_the_start_on(name):
    """The first alarm falls into the very step in which some start is first decided."""
    formula = read_formula(AT_ONCE[name], SPEC)
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(12):
        rows = np.cumsum(rng.normal(0, 0.5, (45, 3)), axis=0).astype(np.float32)
        rows[:, :2] += rng.normal(0, 1.2, 2)
        _, alarm = watch(formula, rows)
        for now in range(len(rows)):
            decided = any(bounds(formula, rows, t, now)[1] < 0 for t in range(now + 1))
            assert not (alarm[: now + 1].any() and not decided)
            if decided:
                assert alarm[: now + 1].any()
                alarms += 1
                break
    assert alarms > 4


def test_a_plant_that_starts_too_hot_alarms_in_its_first_step_and_a_lost_reading_too():
    formula = read_formula("always[0 s, 600 s] (x <= 1 m)", SPEC)
    rows = np.zeros((700, 3))
    rows[0, 0] = 15.0
    value, alarm = watch(formula, rows)
    assert value[0] == pytest.approx(14.0)
    assert alarm[:601].all()
    assert not alarm[601:].any()
    rows[0, 0], rows[3, 0] = 0.0, np.nan
    value, alarm = watch(formula, rows)
    assert not alarm[:3].any()
    assert alarm[3]
    assert value[3] == np.inf
    assert not watch(formula, np.zeros_like(rows))[1].any()


def counted(program):
    """Operations of a program, each loop once, without the branches that act once in a window."""
    count = 0
    for equation in program.eqns:
        inner = [p for p in equation.params.values() if hasattr(p, "jaxpr")]
        count += 1 + sum(counted(one.jaxpr) for one in inner)
    return count


def test_the_work_of_a_step_does_not_grow_with_the_windows():
    """The same number of operations for windows of a hundred and of ten thousand steps."""

    def operations(last):
        part = eventually(above("x", 0.0), last // 2, last)
        formula = conjunction(always(below("x", 1.0), 0, last), part)
        formula = conjunction(formula, until(above("y", 0.0), above("z", 0.0), 0, last))
        monitor = formula_monitor(formula, SPEC)
        seen = MonitorInput(jnp.zeros(3), jnp.zeros(1), jnp.zeros(1))
        carry = jax.eval_shape(monitor.initial_carry)
        program = jax.make_jaxpr(lambda c: monitor(c, seen))(carry)
        numbers = sum(np.prod(leaf.shape, dtype=int) for leaf in jax.tree.leaves(carry))
        return counted(program.jaxpr), numbers

    (few, small), (many, large) = operations(100), operations(10_000)
    assert few == many
    assert large < 101 * small
    with pytest.raises(InputError, match="at most 100000 control periods ahead, got 100001"):
        formula_monitor(always(below("x", 1.0), 0, 100_001), SPEC)
