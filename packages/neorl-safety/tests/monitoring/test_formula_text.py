"""Formulas as text: what is read is what was meant, and what cannot be meant is refused by name."""

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import Channel, InputError, Spec
from neorl_safety.monitoring import (
    above,
    always,
    below,
    conjunction,
    disjunction,
    eventually,
    formula_text,
    negation,
    read_formula,
    robustness,
    until,
)

SPEC = Spec(
    obs=(
        Channel("T_R", "K", 280.0, 400.0),
        Channel("flow", "m3/h", 0.0, 10.0),
        Channel("share of A", "1", 0.0, 1.0),
        Channel("drafted", "?", 0.0, 5.0),
    ),
    action=(Channel("valve", "%", 0.0, 100.0),),
    cost=(),
    dt=30.0,
    horizon=100,
)
HOT, SLOW = above("T_R", 385.0), below("flow", 2.5)
MEANT = {
    "T_R >= 385 K": HOT,
    "always[0 s, 10 min] (T_R < 385K)": always(below("T_R", 385.0), 0, 20),
    "not flow <= 2.5 m3/h and T_R > 385 K": conjunction(negation(SLOW), HOT),
    "T_R >= 385 K or flow <= 2.5 m3/h and 'share of A' >= 0.5": disjunction(
        HOT, conjunction(SLOW, above("share of A", 0.5))
    ),
    "T_R >= 385 K implies eventually[30 s, 0.05 h] flow <= 2.5 m3/h": disjunction(
        negation(HOT), eventually(SLOW, 1, 6)
    ),
    "(T_R >= 3.85e2 K) until[0 s, 60 s] (flow <= 2.5 m3/h)": until(HOT, SLOW, 0, 2),
    "not not always[0 s, 0 s] T_R >= 385 K": negation(negation(always(HOT, 0, 0))),
}


@pytest.mark.parametrize("text", MEANT)
def test_text_means_the_formula_and_the_formula_its_text(text):
    read = read_formula(text, SPEC)
    assert read == MEANT[text]
    assert read_formula(formula_text(read, SPEC), SPEC) == read


def test_what_was_read_has_the_robustness_of_its_meaning():
    """Against plain loops: hot for ten minutes only where the flow falls within two minutes."""
    rng = np.random.default_rng(0)
    obs = np.column_stack(
        [rng.normal(385, 8, 40), rng.uniform(0, 5, 40), rng.uniform(0, 1, (40, 2))]
    )
    text = "T_R >= 385 K implies eventually[0 s, 2 min] flow <= 2.5 m3/h"
    names = [channel.name for channel in SPEC.obs]
    actual = robustness(read_formula(text, SPEC), jnp.asarray(obs, jnp.float32), names)
    for t in range(36):
        expected = max(385.0 - obs[t, 0], max(2.5 - obs[s, 1] for s in range(t, t + 5)))
        assert float(actual.value[t]) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("T_S <= 385 K", "unknown channel 'T_S'; did you mean 'T_R'"),
        ("T_R <= 385", "T_R is in 'K'; write the threshold in this unit"),
        ("drafted <= 3 K", 'unit of drafted is still "?"; complete its unit in plant.toml'),
        ("T_R <= 112 degC", "T_R is in 'K'; write the threshold in this unit"),
        ("flow <= 2 m3/hr", "flow is in 'm3/h'; write the threshold in this unit"),
        ("always[0, 600] T_R <= 385 K", "write a time with its unit: s, min or h"),
        ("always[0 s, 45 s] T_R <= 385 K", "a multiple of the control period of 30 s"),
        ("always[60 s, 30 s] T_R <= 385 K", "later than the last"),
        ("always[-30 s, 30 s] T_R <= 385 K", "a multiple of the control period"),
        ("T_R <= 385 K and", "expected a channel"),
        ("T_R <= 385 K flow <= 2 m3/h", "expected 'and', 'or', 'until', 'implies' or the end"),
        ("(T_R <= 385 K", "expected ')'"),
        ("T_R == 385 K", "this is not part of a formula"),
        ("T_R <= K", "expected a number"),
        ("T_R <= 1e999 K", "expected a number"),
        ("", "expected a channel"),
        ("until", "expected a channel"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_place(text, words):
    with pytest.raises(InputError) as raised:
        read_formula(text, SPEC)
    assert words in str(raised.value)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(" * 300 + "T_R <= 5 K" + ")" * 300, "nested more than 50 deep"),
        ("not " * 3000 + "T_R <= 5 K", "nested more than 50 deep"),
        ("always[0 s, 30 s] " * 60 + "T_R <= 5 K", "nested more than 50 deep"),
        ("T_R <= 5 K implies " * 3000 + "T_R <= 5 K", "nested at most 50 operators deep"),
        ("T_R <= 5 K and " * 20_000 + "T_R <= 5 K", "at most 1000 comparisons and operators"),
    ],
)
def test_a_formula_too_deep_or_too_long_is_one_line(text, words):
    with pytest.raises(InputError, match=words) as raised:
        read_formula(text, SPEC)
    assert len(str(raised.value)) < 500


def test_formulas_made_in_code_are_bounded_too():
    deep, wide = HOT, HOT
    for _ in range(49):
        deep = negation(deep)
    with pytest.raises(InputError, match="nested at most 50 operators deep"):
        negation(deep)
    for _ in range(8):
        wide = conjunction(wide, wide)
    with pytest.raises(InputError, match="at most 1000 comparisons and operators"):
        conjunction(wide, wide)
