"""Limits as data: built, refused by name, written and read back."""

import copy
import json
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import Channel, Spec
from neorl_safety.constraints import (
    ActionConstraints,
    action_constraints,
    constraints_from_dict,
    constraints_to_dict,
)


def test_a_specification_gives_box_actuator_range_and_names(spec):
    limits = action_constraints(spec, [(0.25, 0.5), None])
    assert limits.names == ("valve", "jacket")
    assert limits.units == ("%", "K")
    assert limits.low.tolist() == limits.actuator_low.tolist() == [0.0, 280.0]
    assert limits.high.tolist() == limits.actuator_high.tolist() == [100.0, 320.0]
    assert limits.rate_up.tolist() == [0.25, math.inf]
    assert limits.rate_down.tolist() == [0.5, math.inf]
    assert {leaf.dtype for leaf in jax.tree.leaves(limits)} == {jnp.dtype("float32")}
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(limits))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rates": [0.1]}, "rates has 1 entries; expected 2.*valve, jacket"),
        ({"rates": [-0.1, 1.0]}, r"'valve' \(%\): rate_up must be zero or more"),
        ({"rates": [1.0, (1.0, math.nan)]}, r"'jacket' \(K\): rate_down"),
        ({"rates": [1.0, (1.0, 1.0, 1.0)]}, "one number or a pair"),
        ({"low": [60.0, 280.0], "high": [40.0, 320.0]}, "'valve'.*low 60.0 is above high 40.0"),
        ({"low": [0.0, math.nan]}, "'jacket'.*low must be finite"),
        ({"high": [math.inf, 320.0]}, "'valve'.*high must be finite"),
        ({"high": [1e300, 320.0]}, "'valve'.*high must be finite in float32"),
        ({"high": [100.0, 330.0]}, "'jacket'.*leaves the actuator range 280.0 to 320.0"),
        ({"low": [-1.0, 280.0]}, "'valve'.*leaves the actuator range 0.0 to 100.0"),
    ],
)
def test_bad_limits_are_refused_by_channel(spec, arguments, message):
    with pytest.raises(ValueError, match=message):
        action_constraints(spec, **arguments)


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match=r"low has shape \(3,\); expected \(2,\).*a, b"):
        ActionConstraints(np.zeros(3), *[np.zeros(2)] * 5, names=("a", "b"), units=("1", "1"))
    with pytest.raises(ValueError, match="2 names but 1 units"):
        ActionConstraints(*[np.zeros(2)] * 6, names=("a", "b"), units=("1",))


def test_limits_may_be_traced_and_batched(spec):
    def high(value):
        return (
            action_constraints(spec).high
            + ActionConstraints(
                value, value, value, value, value, value, names=("a", "b"), units=("1", "1")
            ).high
        )

    nothing = jnp.full((4, 2), jnp.nan)
    assert jax.jit(jax.vmap(high))(nothing).shape == (4, 2)


def test_json_round_trip_keeps_every_bit(spec):
    limits = action_constraints(
        spec, [(0.1, 1 / 3), (None or math.inf, 0.7)], low=[0.3, 280.1], high=[99.9, 319.9]
    )
    text = json.dumps(constraints_to_dict(limits), allow_nan=False)
    again = constraints_from_dict(json.loads(text))
    assert again.names == limits.names
    assert again.units == limits.units
    assert again.further == {}
    chex.assert_trees_all_equal(again.action, limits)
    assert '"low": 0.3' in text


def test_a_channel_without_rate_has_no_rate_record(spec):
    records = constraints_to_dict(action_constraints(spec, [0.5, None]))["constraints"]
    assert [(r["kind"], r["channel"]) for r in records] == [
        ("box", "valve"),
        ("box", "jacket"),
        ("rate", "valve"),
    ]


def _without(key):
    def change(document):
        del document[key]

    return change


def _set(value, *path):
    def change(document):
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("other", "format"), "has format 'other', expected 'neorl-constraints'"),
        (_set(2, "version"), "version 2"),
        (_without("channels"), "must have the fields"),
        (_set({}, "constraints"), "constraints must be a list, got dict"),
        (_set([], "channels"), "at least one channel"),
        (_set("orifice", "constraints", 0, "kind"), "constraint 1: unknown kind 'orifice'.*box"),
        (_set(["box"], "constraints", 0, "kind"), "constraint 1: unknown kind"),
        (_set(10**400, "constraints", 0, "low"), "low is too large for a floating-point number"),
        (_set("pump", "constraints", 0, "channel"), "unknown action channel 'pump'.*valve, jacket"),
        (_set("0", "constraints", 0, "low"), "box of 'valve'.*low must be a number, got str"),
        (_set(True, "constraints", 0, "low"), "low must be a number, got bool"),
        (_set(math.nan, "constraints", 0, "low"), "'valve'.*low must be finite"),
        (_set(200.0, "constraints", 0, "low"), "'valve'.*low 200.0 is above"),
        (_set(None, "constraints", 1), "constraint 2 must be an object, got null"),
        (_set("bar", "constraints", 0, "unit"), "unit is 'bar', but valve is in '%'"),
        (_set({"kind": "rate", "channel": "valve"}, "constraints", 2), "give up or down"),
        (_set({"kind": "rate", "up": 1.0}, "constraints", 2), r"rate\) must have the fields"),
        (_set(7, "channels", 0, "name"), "channel 1: name must be a string, got int"),
        (_set("jacket", "channels", 0, "name"), "share a name"),
        (_set("5", "channels", 1, "low"), "channel 'jacket': low must be a number"),
    ],
)
def test_a_malformed_document_is_refused_by_record(spec, change, message):
    document = copy.deepcopy(constraints_to_dict(action_constraints(spec, [0.5, None])))
    change(document)
    with pytest.raises(ValueError, match=message):
        constraints_from_dict(document)


def test_missing_and_double_boxes_are_refused(spec):
    document = constraints_to_dict(action_constraints(spec))
    double = {**document, "constraints": [*document["constraints"], document["constraints"][0]]}
    with pytest.raises(ValueError, match=r"'valve'.*already has a constraint of this kind"):
        constraints_from_dict(double)
    with pytest.raises(ValueError, match="no box for the channels jacket"):
        constraints_from_dict({**document, "constraints": document["constraints"][:1]})
    with pytest.raises(ValueError, match="expected a JSON object"):
        constraints_from_dict([])  # type: ignore[arg-type]


def test_equal_channels_make_equal_programs():
    """Names and units are static: constraints of one plant share a compiled program."""
    valve = Channel("valve", "%", 0.0, 100.0)
    make = [
        action_constraints(
            Spec((Channel("level", "m", 0.0, 2.0),), (valve,), (), dt=60.0, horizon=5), [rate]
        )
        for rate in (0.1, 0.2)
    ]
    assert jax.tree.structure(make[0]) == jax.tree.structure(make[1])
