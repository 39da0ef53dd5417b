"""Robustness against an independent library and against its definition, offline and online."""

import json
from pathlib import Path

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
    robustness,
    until,
)

RECORDED = json.loads((Path(__file__).parent / "rtamt_robustness.json").read_text())
FORMULAS = {
    "always": always(above("x", 0.5), 0, 3),
    "eventually": eventually(below("y", 0.2), 1, 4),
    "until": until(above("x", 0.0), above("y", 0.7), 1, 5),
    "until from now": until(above("x", 0.0), above("y", 0.4), 0, 3),
    "nested": always(
        disjunction(negation(above("x", 0.6)), eventually(above("y", 0.3), 0, 2)), 0, 4
    ),
    "both": conjunction(always(above("x", -1.0), 0, 2), eventually(above("y", 0.0), 0, 3)),
}
SIGNAL = jnp.asarray(RECORDED["signal"], jnp.float32)


@pytest.fixture(scope="module")
def values():
    """All formulas over the recorded signal, in one program."""

    def every(signal):
        return {name: robustness(f, signal, ["x", "y"]) for name, f in FORMULAS.items()}

    return jax.tree.map(np.asarray, jax.jit(every)(SIGNAL))


@pytest.mark.parametrize("name", FORMULAS)
def test_every_operator_agrees_with_rtamt(values, name):
    expected = np.array(RECORDED["robustness"][name])
    np.testing.assert_allclose(values[name].value[: len(expected)], expected, atol=1e-5)
    assert (np.sign(expected) > 0).any()
    assert (np.sign(expected) < 0).any()


def test_a_window_that_is_not_full_says_so(values):
    for name, formula in FORMULAS.items():
        complete = values[name].complete
        np.testing.assert_array_equal(complete, np.arange(60) < 60 - formula.horizon)
        np.testing.assert_array_equal(np.isnan(values[name].value), ~complete)
    assert FORMULAS["nested"].horizon == 6


def definition(formula, rows, t, positive=True):
    """The semantics word by word, one step at a time, in plain Python."""
    if formula.operator in ("above", "below"):
        x = rows[t]["xy".index(formula.channel)]
        if np.isnan(x):
            return -np.inf if positive else np.inf
        return x - formula.threshold if formula.operator == "above" else formula.threshold - x
    if formula.operator == "not":
        return -definition(formula.parts[0], rows, t, not positive)
    first, last = formula.window
    at = [lambda s, part=part: definition(part, rows, s, positive) for part in formula.parts]
    if formula.operator in ("and", "or"):
        return (min if formula.operator == "and" else max)(f(t) for f in at)
    steps = range(t + first, t + last + 1)
    if formula.operator == "always":
        return min(at[0](s) for s in steps)
    if formula.operator == "eventually":
        return max(at[0](s) for s in steps)
    return max(min([at[1](s), *(at[0](r) for r in range(t, s))]) for s in steps)


def test_a_lost_reading_violates_and_all_agrees_with_the_definition():
    rows = np.asarray(SIGNAL).copy()
    rows[[7, 20, 33], [0, 1, 0]] = np.nan
    actual = jax.jit(
        lambda signal: {n: robustness(f, signal, ["x", "y"]).value for n, f in FORMULAS.items()}
    )(jnp.asarray(rows))
    for name, formula in FORMULAS.items():
        steps = range(60 - formula.horizon)
        expected = [definition(formula, rows.astype(np.float64), t) for t in steps]
        np.testing.assert_allclose(actual[name][: len(expected)], expected, atol=1e-5)
    assert actual["always"][7] == -np.inf
    assert definition(negation(above("x", 0.6)), rows, 7) == -np.inf


def test_the_monitor_gives_online_what_the_trajectory_gives_afterwards(values):
    valve = Channel("u", "%", 0.0, 1.0)
    names = tuple(Channel(name, "m", -20.0, 20.0) for name in "xy")
    spec = Spec(names, (valve,), (), dt=1.0, horizon=60)
    for name in ("nested", "until"):
        monitor = formula_monitor(FORMULAS[name], spec)

        def step(carry, obs, monitor=monitor):
            return monitor(carry, MonitorInput(obs, jnp.zeros(1), jnp.zeros(1)))

        _, scores = jax.lax.scan(step, monitor.initial_carry(), SIGNAL)
        late = FORMULAS[name].horizon
        expected = values[name].value[: 60 - late]
        np.testing.assert_allclose(-scores.value[late:], expected, atol=1e-6)
        np.testing.assert_array_equal(scores.alarm[late:], expected < 0)
    with pytest.raises(InputError, match="unknown channel 'z'"):
        formula_monitor(above("z", 0.0), spec)


def test_bad_windows_are_refused():
    for window in ((3, 1), (-1, 2), (0, 1.5)):
        with pytest.raises(InputError, match="a window must be two integers of at least 0"):
            always(above("x", 0.0), *window)  # pyright: ignore
    with pytest.raises(InputError, match="at least one formula"):
        conjunction()
