"""Limits and fallback of a run: taken from the source, tightened, refused, said in words."""

import dataclasses
import math
import tomllib
from types import SimpleNamespace
from typing import get_args

import jax.numpy as jnp
import pytest

from neorl_core import Channel, CostChannel, InputError, Spec
from neorl_train import Config
from neorl_train.configuration import (
    FallbackConfig,
    LimitsConfig,
    limited_spec,
    load_toml,
)
from neorl_train.configuration._guard import (
    _RULES,
    FallbackKind,
    cost_sentences,
    declared_limits,
    fallback_policy,
    fallback_sentence,
    resolved_fallback,
    resolved_limits,
)

SPEC = Spec(
    obs=(Channel("level", "m", 0.0, 2.0),),
    action=(Channel("valve", "%", 0.0, 100.0), Channel("feed", "kg/h", -5.0, 5.0)),
    cost=(CostChannel("heat", "K min", 20.0, "episode"), CostChannel("peak", "bar", 0.5, "step")),
    dt=60.0,
    horizon=10,
)
PLANT = declared_limits(SPEC, [2.0, math.inf])
LOG = declared_limits(SPEC, None)


def test_what_a_run_does_not_name_is_the_sources_own():
    assert resolved_limits(LimitsConfig(), PLANT, SPEC) == PLANT
    assert PLANT.cost == {"heat": 20.0, "peak": 0.5}
    assert (PLANT.low, PLANT.high) == ({"valve": 0.0, "feed": -5.0}, {"valve": 100.0, "feed": 5.0})
    assert PLANT.rate_up == PLANT.rate_down == {"valve": 2.0, "feed": math.inf}
    assert set(LOG.rate_up.values()) == {math.inf}


def test_what_a_run_names_takes_its_place_and_resolving_again_changes_nothing():
    limits = LimitsConfig({"heat": 15.0}, {"valve": 10.0}, {"feed": 4.0}, {"feed": 0.5}, {})
    result = resolved_limits(limits, PLANT, SPEC)
    assert result.cost == {"heat": 15.0, "peak": 0.5}
    assert result.low == {"valve": 10.0, "feed": -5.0}
    assert result.high == {"valve": 100.0, "feed": 4.0}
    assert result.rate_up == {"valve": 2.0, "feed": 0.5}
    assert result.rate_down == PLANT.rate_down
    assert resolved_limits(result, PLANT, SPEC) == result


BAD = {
    "unknown cost": ({"cost": {"haet": 1.0}}, "unknown cost in limits.cost 'haet'.*'heat'"),
    "unknown channel": ({"low": {"vlave": 1.0}}, "channel in limits.low 'vlave'.*'valve'"),
    "cost that is not finite": ({"cost": {"heat": math.inf}}, "finite.*in K min per episode"),
    "cost that is no number": ({"cost": {"peak": math.nan}}, "finite.*in bar per step"),
    "negative cost": ({"cost": {"peak": -1.0}}, "limits.cost.peak must be finite and not negative"),
    "box below the range": ({"low": {"feed": -6.0}}, "-6 kg/h, outside.*-5 to 5 kg/h.*only narrow"),
    "box above the range": ({"high": {"valve": 101.0}}, "limits.high.valve is 101 %, outside"),
    "box that is no number": ({"high": {"valve": math.nan}}, "limits.high.valve is nan %"),
    "empty box": ({"low": {"valve": 60.0}, "high": {"valve": 50.0}}, "60 %, above limits.high"),
    "negative rate": ({"rate_up": {"feed": -1.0}}, "not negative, in kg/h per second, got -1"),
    "looser rate": ({"rate_down": {"valve": 3.0}}, "from 0 to the plant's own 2, in % per second"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_limit_is_refused_by_name_and_unit(kind):
    fields, message = BAD[kind]
    with pytest.raises(InputError, match=message):
        resolved_limits(LimitsConfig(**fields), PLANT, SPEC)


RECORDS = """
[[constraint]]
kind = "range"
channel = "valve"
low = 10.0

[[constraint]]
kind = "rate"
channel = "feed"
up = 30.0
per = "min"

[[constraint]]
kind = "while"
obs = "level"
above = 1.8
channel = "valve"
high = 20.0
"""


def test_ranges_and_rates_among_the_tables_of_constraints_are_the_limits_of_their_channels(
    tmp_path,
):
    (tmp_path / "run.toml").write_text(f"[limits.high]\nvalve = 90.0\n{RECORDS}")
    config = load_toml(tmp_path / "run.toml", Config())
    result = resolved_limits(config.limits, PLANT, SPEC)
    assert result.low == {"valve": 10.0, "feed": -5.0}
    assert result.high["valve"] == 90.0
    assert result.rate_up == {"valve": 2.0, "feed": 0.5}
    assert result.rate_down == PLANT.rate_down
    assert [record["kind"] for record in result.further] == ["while"]
    assert resolved_limits(result, PLANT, SPEC) == result
    twice = dataclasses.replace(config.limits, low={"valve": 5.0})
    with pytest.raises(
        InputError, match=r"limits.low.valve is 5, and a constraint declares 10; remove"
    ):
        resolved_limits(twice, PLANT, SPEC)
    (tmp_path / "run.toml").write_text(RECORDS.replace("low = 10.0", "low = -10.0"))
    outside = load_toml(tmp_path / "run.toml", Config())
    with pytest.raises(InputError, match=r"limits.low.valve is -10 %, outside the range"):
        resolved_limits(outside.limits, PLANT, SPEC)
    (tmp_path / "run.toml").write_text('[constraint]\nkind = "range"')
    with pytest.raises(InputError, match="with two brackets"):
        load_toml(tmp_path / "run.toml", Config())


def test_what_the_plant_toml_of_a_log_declares_is_the_sources_own():
    own = tomllib.loads(RECORDS)["constraint"]
    declared = declared_limits(SPEC, None, own)
    assert (declared.low["valve"], declared.rate_up["feed"]) == (10.0, 0.5)
    assert declared.rate_down["feed"] == math.inf
    with pytest.raises(InputError, match=r"from 0 to the plant's own 0.5, in kg/h per second"):
        resolved_limits(LimitsConfig(rate_up={"feed": 1.0}), declared, SPEC)
    with pytest.raises(InputError, match=r"plant.toml, constraint 1 \(rate of 'feed'\): give up"):
        declared_limits(SPEC, None, [{"kind": "rate", "channel": "feed"}])


def fallback(kind, values, *, reference="", mean=(50.0, 9.0), limits=LOG):
    config = FallbackConfig(kind, values)
    return resolved_fallback(config, limits, SPEC, reference=reference, mean=mean)


def test_the_fallback_of_a_plant_is_its_reference_and_of_a_log_the_mean_action_in_the_box():
    assert fallback("default", {}, reference="slow") == FallbackConfig("reference", {})
    assert fallback("reference", {}, reference="slow") == FallbackConfig("reference", {})
    held = fallback("default", {})
    assert held == FallbackConfig("constant", {"valve": 50.0, "feed": 5.0})
    assert fallback(held.kind, held.values) == held
    given = {"feed": 1.0, "valve": 30.0}
    assert fallback("constant", given, reference="slow").values == given


BAD_FALLBACKS = {
    "log without a controller": ("reference", {}, "a log has no controller"),
    "values without effect": ("default", {"valve": 1.0}, "no effect.*--fallback.kind constant"),
    "nothing fitted": (
        "classical",
        {},
        "no classical controller is fitted; add `--classical.contr",
    ),
    "unknown channel": ("constant", {"valv": 1.0}, "unknown action channel.*'valve'"),
    "unknown kind": ("constent", {"valve": 1.0}, "unknown fallback.kind 'constent'.*'constant'"),
    "missing channel": ("constant", {"valve": 1.0}, "no entry for feed.*-5 to 5 kg/h"),
    "outside the box": ("constant", {"valve": 1.0, "feed": 6.0}, "feed is 6 kg/h.*-5 to 5 kg/h"),
    "no number": ("constant", {"valve": math.nan, "feed": 0.0}, "valve is nan"),
}


@pytest.mark.parametrize("name", BAD_FALLBACKS)
def test_a_bad_fallback_is_refused_by_name_and_unit(name):
    kind, values, message = BAD_FALLBACKS[name]
    with pytest.raises(InputError, match=message):
        fallback(kind, values)


def test_every_kind_but_the_default_has_a_policy_and_words():
    assert set(get_args(FallbackKind)) == {"default", *_RULES}
    held = FallbackConfig("constant", {"valve": 50.0, "feed": 1.0})
    _, action = fallback_policy(held, None, SPEC)((), jnp.zeros(1), None)
    assert action.tolist() == [50.0, 1.0]
    plant = SimpleNamespace(reference="slow", tunings=lambda: {"slow": "a policy"})
    assert fallback_policy(FallbackConfig("reference", {}), plant, SPEC) == "a policy"
    fitted = FallbackConfig("classical", {}, "pid")
    assert fallback_policy(fitted, plant, SPEC, {"pid": "fitted"}) == "fitted"


@pytest.mark.parametrize("kind", ["default", "hold"])
def test_what_is_not_resolved_is_neither_built_nor_told(kind):
    unresolved = FallbackConfig(kind, {"valve": 50.0, "feed": 1.0})
    with pytest.raises(InputError, match=f"resolved fallback '{kind}'"):
        fallback_policy(unresolved, None, SPEC)
    with pytest.raises(InputError, match="known: reference, constant"):
        fallback_sentence(unresolved, SPEC, reference="", given=True)


def test_words_give_units_and_tell_a_declared_fallback_from_a_default_one():
    limits = LimitsConfig(cost={"heat": 15.0})
    result = cost_sentences(resolved_limits(limits, PLANT, SPEC), SPEC)
    assert result == [
        "cost heat at most 15 K min per episode",
        "cost peak at most 0.5 bar per step",
    ]
    held = FallbackConfig("constant", {"valve": 50.0, "feed": 1.0})
    assert (
        fallback_sentence(held, SPEC, reference="", given=True) == "holds valve 50 %, feed 1 kg/h"
    )
    assert "no fallback was declared" in fallback_sentence(held, SPEC, reference="", given=False)
    own = fallback_sentence(FallbackConfig("reference", {}), SPEC, reference="slow", given=False)
    assert own == "the plant's reference controller, slow"


def test_a_specification_with_other_limits_has_the_same_channels():
    result = limited_spec(SPEC, {"peak": 0.25})
    assert [channel.limit for channel in result.cost] == [20.0, 0.25]
    assert (result.obs, result.action, result.cost[0]) == (SPEC.obs, SPEC.action, SPEC.cost[0])
    with pytest.raises(InputError, match=r"unknown cost .peka.*peak"):
        limited_spec(SPEC, {"peka": 1.0})
