"""What a converted log declares of its plant: expressions as compiled functions, and roles."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_envs import Dataset
from neorl_envs.plant_logs import (
    DeclaredPlant,
    Expression,
    convert_log,
    declared_plant,
    plant_log_from_dict,
)
from neorl_envs.plant_logs._interlocks import UntranslatableError, evaluate, formula_of

from .conftest import WIDE

NAMES = ("level", "valve", "before_valve")
EXPRESSIONS = [
    "-abs(level - 1.2) - 0.01 * abs(valve - before_valve)",
    "greatest(level - 1.2, 0) + least(valve, 3, 2 * level)",
    "CASE WHEN level > 1.0 AND NOT (valve <= 3) THEN 2 ELSE -level / 3 END",
    "CASE WHEN level > 5 OR valve = 3 THEN 1 WHEN valve != before_valve THEN 2.5e-1 ELSE 0 END",
    "power(level, 2) + sqrt(valve) + exp(-level) + ln(valve) + log10(level) + sign(level - 3)",
    "level * (valve > 2) - floor(valve) + ceil(level) + mod(valve, 2)",
    "exp(-power(level - 2, 2) / 2) * 1.5e1 + sin(level) + cos(valve) + atan2(level, valve)",
    "coalesce(level, 0) - nullif(valve, 2) + (level > 2)::double",
    "if(level between 2 and 4, 1, 0) * 7 / 2 + level // 2",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_a_formula_has_the_values_that_polars_computes(text):
    drawn = np.random.default_rng(0).uniform(0.5, 6, (3, 200))
    drawn[1, :20] = drawn[2, :20] = 3.0
    columns = dict(zip(NAMES, drawn, strict=True))
    expression = Expression(text, NAMES, "reward")
    single = {name: jnp.asarray(column, jnp.float32) for name, column in columns.items()}
    formula = formula_of(expression.tree())
    compiled = jax.jit(evaluate, static_argnums=0)(formula, single)
    np.testing.assert_allclose(compiled, expression(columns), rtol=2e-5, atol=2e-5)
    assert hash(formula) == hash(formula_of(Expression(text, NAMES, "reward").tree()))


@pytest.mark.parametrize("text", ["round(level, 2)", "CASE WHEN level IN (1, 2) THEN 1 END"])
def test_what_is_not_known_is_refused_and_not_guessed(text):
    with pytest.raises(UntranslatableError, match="which cannot be compiled"):
        formula_of(Expression(text, NAMES, "reward").tree())


def converted(wide: Path, **changes: Any) -> Dataset:
    """The wide export of the tank under its configuration with other tables."""
    return convert_log(plant_log_from_dict({**WIDE, **changes}, "plant.toml"), folder=wide)


def test_reward_cost_and_roles_of_a_converted_log(wide):
    """Along the log the function gives what the conversion wrote, with the valve's move in it."""
    dataset = converted(wide)
    declared = declared_plant(dataset)
    assert declared.exogenous == ("setpoint",)
    assert declared.setpoints == ("setpoint",)
    assert declared.notes == (
        "computed by the expressions of plant.toml: reward, cost overflow",
        "taken from the log, as setpoints and disturbances are: setpoint",
    )
    rows = dataset.transitions
    good = np.flatnonzero(np.asarray(rows.mask)[1:] & np.asarray(rows.mask)[:-1]) + 1
    good = np.setdiff1d(good, dataset.episode_starts)
    columns = [np.asarray(x)[good] for x in (rows.obs, rows.action, rows.next_obs)]
    last = np.asarray(rows.action)[good - 1]
    assert declared.objective is not None
    outcome = jax.vmap(declared.objective)(*map(jnp.asarray, (*columns, last)))
    np.testing.assert_allclose(outcome[:, 0], np.asarray(rows.reward)[good], atol=1e-5)
    np.testing.assert_allclose(outcome[:, 1], np.asarray(rows.cost)[good, 0], atol=1e-6)
    assert np.ptp(np.asarray(rows.cost)[good, 0]) > 0
    again = declared_plant(dataset).objective
    assert hash(declared.objective) == hash(again)


def test_what_the_columns_do_not_give_is_learned_and_said(wide):
    tags = [{**one, "delay_s": 60} if one["name"] == "level" else one for one in WIDE["tag"]]
    dataset = converted(wide, tag=tags)
    declared = declared_plant(dataset)
    assert declared.objective is None
    assert "reward is learned and its expression not used" in declared.notes[0]
    assert "without a delay" in declared.notes[0]


def test_an_expression_that_is_not_what_the_log_holds_is_not_used(wide):
    """As after somebody wrote other rewards into the file."""
    dataset = converted(wide)
    doubled = dataset.transitions._replace(reward=2 * np.asarray(dataset.transitions.reward))
    declared = declared_plant(dataclasses.replace(dataset, transitions=doubled))
    assert declared.notes[0] == "computed by the expressions of plant.toml: cost overflow"
    assert "it differs from the logged values by up to" in declared.notes[1]
    assert declared.objective is not None
    assert declared.objective.outputs[0] is None


def test_a_log_that_was_not_converted_declares_nothing():
    from neorl_envs import collect_log, make

    log = collect_log(make("DMSD-v0"), n_steps=1, key=jax.random.key(0))
    assert declared_plant(log) == DeclaredPlant()
