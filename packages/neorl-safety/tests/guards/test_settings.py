"""Settings of a guard survive JSON, act as declared, and are refused by name."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import Channel, InputError, Spec
from neorl_core.control import ConstantPolicy
from neorl_safety.constraints import action_constraints
from neorl_safety.filters import flag_names
from neorl_safety.guards import (
    FallbackChain,
    GuardSettings,
    default_settings,
    describe_settings,
    guard,
    guard_with,
    settings_from_dict,
    settings_to_dict,
    supervision,
)
from neorl_safety.monitoring import NamedMonitor, below, formula_monitor, range_monitor

SPEC = Spec(
    obs=(Channel("level", "m", 0.0, 2.0),),
    action=(Channel("valve", "%", 0.0, 100.0),),
    cost=(),
    dt=10.0,
    horizon=50,
)
FALLBACKS = {
    "fallback": ConstantPolicy(jnp.array([jnp.nan])),
    "second": ConstantPolicy(jnp.ones(1)),
}
SETTINGS = GuardSettings(
    supervision(trip_after=2, reset_after=3, dwell=4, latch_after=2, assume_for=1, settle=0.0),
    (
        NamedMonitor("range", range_monitor(SPEC)),
        NamedMonitor("full", formula_monitor(below("level", 1.5), SPEC)),
    ),
    ("fallback", "second"),
    {"level": 30.0},
)


def read(document):
    return settings_from_dict(json.loads(json.dumps(document, allow_nan=False)), SPEC)


def test_settings_survive_json():
    document = settings_to_dict(SETTINGS, SPEC)
    assert settings_to_dict(read(document), SPEC) == document
    assert read(document).max_age == {"level": 30.0}


def test_the_declared_settings_act_and_the_alarm_says_which_monitor():
    safe = guard_with(
        read(settings_to_dict(SETTINGS, SPEC)), ConstantPolicy(jnp.array([80.0])),
        action_constraints(SPEC), FALLBACKS, SPEC,
    )  # fmt: skip
    assert isinstance(safe.fallback, FallbackChain)
    carry, seen = safe.initial_carry(), []
    for level in (1.0, 1.6, 1.6, 2.5, 1.0, 1.0, 1.0, 1.0):
        carry, action = safe(safe.sent(carry, carry.previous), jnp.array([level]))
        seen.append((int(carry.report.alarms), float(action[0])))
    # The first fallback gives NaN, so the second acts, from the second step with an alarm on.
    # Back with the third clean step in a row, for the fallback has stayed four by then.
    assert seen == [(0, 80), (2, 80), (2, 1), (3, 1), (0, 1), (0, 1), (0, 80), (0, 80)]
    carry, _ = safe(safe.sent(carry, carry.previous), jnp.array([jnp.nan]))
    assert {"latched", "fallback_used"} <= set(flag_names(int(carry.report.flags)))


def test_the_default_settings_are_those_of_a_guard_that_is_told_nothing():
    parts = (ConstantPolicy(jnp.ones(1)), action_constraints(SPEC))
    by_settings = guard_with(
        default_settings(SPEC), *parts, {"fallback": FALLBACKS["second"]}, SPEC
    )
    plain = guard(*parts, FALLBACKS["second"], SPEC)
    assert jax.tree.structure(by_settings) == jax.tree.structure(plain)
    jax.tree.map(np.testing.assert_array_equal, by_settings, plain)


def test_settings_say_in_words_what_they_do():
    description = "\n".join(describe_settings(SETTINGS, SPEC))
    for words in (
        "alarm at full: not level <= 1.5 m",
        "level older than 30 s",
        "after 2 steps with an alarm",
        "until 3 steps in a row raised no alarm",
        "after 2 take-overs it stays in charge until an operator releases it",
        "assumes its own last action for one step",
        "fallback, second",
    ):
        assert words in description


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_age": {"levl": 3.0}}, "unknown channel 'levl'; did you mean 'level'"),
        ({"max_age": {"level": 0.0}}, "max_age.level must be a positive number of seconds"),
        ({"fallbacks": []}, "a list of different names"),
        ({"supervisor": {"trip_after": 1}}, "supervisor must have the fields"),
        ({"more": 1}, "must have the fields"),
    ],
)
def test_bad_settings_are_refused_by_name(change, words):
    with pytest.raises(InputError, match=words):
        read({**settings_to_dict(SETTINGS, SPEC), **change})


def test_a_supervisor_out_of_range_and_a_missing_fallback_are_refused_by_name():
    document = settings_to_dict(SETTINGS, SPEC)
    document["supervisor"]["dwell"] = -1
    with pytest.raises(InputError, match="dwell must be an integer of at least 0, got -1"):
        read(document)
    with pytest.raises(InputError, match="unknown fallback 'second'"):
        guard_with(
            SETTINGS, FALLBACKS["second"], action_constraints(SPEC),
            {"fallback": FALLBACKS["second"]}, SPEC,
        )  # fmt: skip
