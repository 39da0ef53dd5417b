"""Kinds from outside: registered or installed, they have a document, words and a meaning."""

import json

import chex
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import Channel, InputError, Spec
from neorl_safety.constraints import (
    KINDS,
    Box,
    ConstraintKind,
    Constraints,
    Rate,
    Situation,
    action_constraints,
    constraints_from_dict,
    constraints_to_dict,
    describe_constraints,
    register_kind,
)


def situation_of(obs, start) -> Situation:
    held = jnp.full_like(start, jnp.inf)
    return Situation(obs, start, jnp.asarray(60.0), request=start, held=held, position=start)


def test_box_and_rate_are_the_first_entries():
    assert list(KINDS)[:2] == ["box", "rate"]
    assert all(isinstance(kind, ConstraintKind) for kind in KINDS.values())


def test_each_kind_says_what_it_demands(spec):
    limits = action_constraints(spec, [(0.25, 0.5), None], high=[80.0, 320.0])
    assert describe_constraints(limits) == [
        "valve between 0 and 80 %",
        "jacket between 280 and 320 K",
        "valve rises by at most 0.25 % per second and falls by at most 0.5 % per second",
        "jacket may change at any rate",
    ]


def test_channels_without_a_rate_limit_share_one_sentence(spec):
    three = Spec(
        spec.obs,
        tuple(Channel(name, "%", 0.0, 100.0) for name in ("XMV_1", "XMV_2", "XMV_3")),
        (),
        dt=60.0,
        horizon=10,
    )
    assert describe_constraints(action_constraints(three))[3:] == [
        "XMV_1, XMV_2 and XMV_3 may change at any rate"
    ]
    assert describe_constraints(action_constraints(three, [None, 0.5, None]))[3:] == [
        "XMV_2 rises by at most 0.5 % per second and falls by at most 0.5 % per second",
        "XMV_1 and XMV_3 may change at any rate",
    ]


def test_each_kind_lowers_itself_to_an_interval():
    situation = situation_of(jnp.zeros(1), jnp.array([50.0, 300.0]))
    box = KINDS["box"].lower(Box(jnp.array([0.0, jnp.nan]), jnp.array([100.0, 320.0])), situation)
    largest = np.finfo(np.float32).max
    np.testing.assert_array_equal(box.low, np.float32([0.0, -largest]))
    np.testing.assert_array_equal(box.bad, [False, True])
    rate = KINDS["rate"].lower(Rate(jnp.array([0.25, jnp.inf]), jnp.array([0.5, -1.0])), situation)
    np.testing.assert_array_equal(rate.low, [20.0, 300.0])
    np.testing.assert_array_equal(rate.high, [65.0, np.inf])
    np.testing.assert_array_equal(rate.bad, [False, True])


def test_a_foreign_kind_is_written_described_and_read_back(spec, ceiling):
    constraint = ceiling.constraint(obs=1, above=350.0, highest=[10.0, 300.0])
    with pytest.raises(InputError, match=r"unknown kind 'ceiling';.* known: box, rate, "):
        Constraints(action_constraints(spec), {"ceiling": constraint})
    register_kind("ceiling", ceiling.kind)
    constraints = Constraints(action_constraints(spec, [0.5, None]), {"ceiling": constraint})
    document = json.loads(json.dumps(constraints_to_dict(constraints), allow_nan=False))
    assert document["constraints"][-1] == {
        "kind": "ceiling",
        "obs": 1,
        "above": 350.0,
        "highest": [10.0, 300.0],
    }
    again = constraints_from_dict(document)
    chex.assert_trees_all_equal(again, constraints)
    words = describe_constraints(again)
    assert words[-2:] == [
        "valve at most 10 % while observation 1 is above 350",
        "jacket at most 300 K while observation 1 is above 350",
    ]
    document["constraints"][-1]["above"] = "hot"
    with pytest.raises(InputError, match=r"constraint 4 \(ceiling\): above must be a number"):
        constraints_from_dict(document)


def test_a_kind_that_is_none_is_refused(ceiling):
    with pytest.raises(InputError, match="a kind must be an object, got the class"):
        register_kind("ceiling", type(ceiling.kind))
    with pytest.raises(InputError, match=r"must have to_records, .*; to_records is missing"):
        register_kind("ceiling", object())  # pyright: ignore
    with pytest.raises(InputError, match="the kind 'box' exists already"):
        register_kind("box", ceiling.kind)


def test_a_broken_distribution_is_named_where_its_kind_is_used(spec, distribution):
    distribution("neorl.constraints", "totaliser = no_such_module:KIND")
    document = constraints_to_dict(action_constraints(spec))
    assert constraints_from_dict(document).n_action == 2
    document["constraints"].append({"kind": "totaliser"})
    with pytest.raises(InputError, match=r"the kind 'totaliser' of foreign 0.3 cannot be imported"):
        constraints_from_dict(document)
