"""Monitors survive JSON to the bit, say what they promise, and bad documents are refused."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import Channel, InputError, Spec
from neorl_core.control import ConstantPolicy, StateFeedback
from neorl_safety.monitoring import (
    CriticMonitor,
    MonitorInput,
    NamedMonitor,
    above,
    always,
    calibrate,
    describe_monitor,
    drift_monitor,
    formula_monitor,
    frozen_monitor,
    mahalanobis_monitor,
    monitors_from_dict,
    monitors_to_dict,
    neighbour_monitor,
    policy_ensemble,
    range_monitor,
)

SPEC = Spec(
    obs=(Channel("level", "m", 0.0, 2.0), Channel("T", "K", 280.0, 400.0)),
    action=(Channel("valve", "%", 0.0, 50.0),),
    cost=(),
    dt=60.0,
    horizon=100,
)
RNG = np.random.default_rng(7)
LOG = (RNG.normal(size=(400, 2)) * [0.2, 9.0] + [1.0, 330.0]).astype(np.float32)


def feedback(gain, middle):
    return StateFeedback(
        jnp.array([[gain, 0.01]]), jnp.array([1.0, 330.0]), jnp.array([middle]),
        jnp.zeros(1), jnp.array([50.0]),
    )  # fmt: skip


POLICIES = {f"bc-{i}": feedback(g, m) for i, (g, m) in enumerate([(3.0, 20.0), (5.0, 22.0)])}


@pytest.fixture(scope="module")
def watches():
    obs = jnp.asarray(LOG[:380]).reshape(19, 20, 2)
    sent = jnp.zeros((19, 20, 1))
    members = policy_ensemble(list(POLICIES.values()), SPEC)
    fitted = {
        "far": mahalanobis_monitor(LOG),
        "near": neighbour_monitor(LOG, keep=40, neighbours=3),
        "drift": drift_monitor(LOG),
        "apart": members,
    }
    set_ = [
        NamedMonitor(name, calibrate(one, obs, sent, false_alarms=0.1), 0.1, 19,
              tuple(POLICIES) if name == "apart" else ())
        for name, one in fitted.items()
    ]  # fmt: skip
    given = [
        NamedMonitor("range", range_monitor(SPEC)),
        NamedMonitor("still", frozen_monitor(SPEC, {"T": 4})),
        NamedMonitor("hot", formula_monitor(always(above("T", 300.0), 0, 2), SPEC)),
    ]
    return given + set_


@pytest.fixture(scope="module")
def document(watches):
    return json.loads(json.dumps(monitors_to_dict(watches, SPEC), allow_nan=False))


def test_every_kind_survives_json_to_the_bit(watches, document):
    read = monitors_from_dict(document, SPEC, POLICIES)
    assert [one.name for one in read] == [one.name for one in watches]
    for ours, theirs in zip(watches, read, strict=True):
        assert ours.calibrated == theirs.calibrated
        assert (ours.episodes, ours.policies) == (theirs.episodes, theirs.policies)
        assert jax.tree.structure(ours.monitor) == jax.tree.structure(theirs.monitor)
        jax.tree.map(np.testing.assert_array_equal, ours.monitor, theirs.monitor)
    assert monitors_to_dict(read, SPEC) == document


def test_a_monitor_says_in_words_what_it_watches_and_promises(watches):
    descriptions = [describe_monitor(one, SPEC) for one in watches]
    assert descriptions[0] == (
        "range: an observation beyond its measuring range by more than 5 % of it"
    )
    assert descriptions[1] == "still: a measurement that does not move: T for more than 240 s"
    assert descriptions[2] == "hot: not always[0 s, 120 s] (T >= 300 K)"
    for words in descriptions[3:]:
        assert re.search("at most 10 % of episodes like the 19 held-out ones", words)
    assert "policies that disagree (bc-0, bc-1)" in descriptions[-1]


def test_disagreement_is_the_standard_deviation_in_parts_of_the_range(watches):
    """Against NumPy: two linear laws, clipped by nothing here."""
    monitor = watches[-1].monitor
    for row in LOG[:10]:
        _, score = monitor((), MonitorInput(jnp.asarray(row), jnp.zeros(1), jnp.zeros(1)))
        proposed = [
            m - g * (row[0] - 1.0) - 0.01 * (row[1] - 330.0) for g, m in [(3.0, 20.0), (5.0, 22.0)]
        ]
        assert float(score.value) == pytest.approx(np.std(proposed) / 50.0, rel=1e-4)


def test_policies_that_cannot_be_compared_are_refused():
    one = feedback(1.0, 20.0)
    with pytest.raises(InputError, match="at least two policies, got 1"):
        policy_ensemble([one], SPEC)
    with pytest.raises(InputError, match="of the same structure"):
        policy_ensemble([one, ConstantPolicy(jnp.ones(1))], SPEC)


def _change(**fields):
    def changed(document, which):
        document["monitors"][which].update(fields)

    return changed


@pytest.mark.parametrize(
    ("which", "change", "words"),
    [
        (0, _change(low=[0.0]), r"monitor 'range': low has shape \(1,\)"),
        (0, _change(tolerance=None), "tolerance has shape|tolerance must hold numbers"),
        (1, _change(kind="frosen"), "unknown kind 'frosen'; did you mean 'frozen'"),
        (1, _change(more=1), "monitor 'still' must have the fields"),
        (2, _change(formula="T <= 300 C"), "T is in 'K'; write the threshold in this unit"),
        (3, _change(threshold=float("nan")), "finite numbers"),
        (3, _change(false_alarms=2.0), "false_alarms must be a rate in"),
        (4, _change(neighbours=41), "between 1 and the number of rows"),
        (6, _change(policies=["bc-7", "bc-0"]), "unknown policy 'bc-7'"),
    ],
)
def test_a_bad_document_is_refused_by_the_name_of_the_monitor(document, which, change, words):
    broken = json.loads(json.dumps(document))
    change(broken, which)
    with pytest.raises(InputError, match=words):
        monitors_from_dict(broken, SPEC, POLICIES)


def test_a_document_of_another_plant_and_kinds_without_a_record_are_refused(document, watches):
    other = {**document, "observations": ["level", "p"]}
    with pytest.raises(InputError, match="the observations of this plant are"):
        monitors_from_dict(other, SPEC, POLICIES)
    critic = CriticMonitor(jnp.ones(2), jnp.float32(1.0), lambda p, obs, action: jnp.sum(p * obs))
    with pytest.raises(InputError, match="'mine' is a CriticMonitor, which cannot be written"):
        monitors_to_dict([NamedMonitor("mine", critic)], SPEC)
    with pytest.raises(InputError, match="calibrate it first"):
        monitors_to_dict([NamedMonitor("raw", drift_monitor(LOG))], SPEC)
