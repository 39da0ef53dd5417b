"""Channels, Spec and the scaling built from them: CostChannel, highs, lows, spec_from_dict,
spec_to_dict, unit_interval."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neorl_core import (
    Channel,
    CostChannel,
    Spec,
    highs,
    lows,
    spec_from_dict,
    spec_to_dict,
    unit_interval,
)

LEVEL = Channel("level", "m", 0.0, 2.0)
FLOW = Channel("flow", "m3/h", -1.0, 5.0)
VALVE = Channel("valve", "%", 0.0, 100.0)
SPILL = CostChannel("spill", "m3", 0.5, "episode")


def a_spec(**changes):
    fields = {"obs": (LEVEL, FLOW), "action": (VALVE,), "cost": (SPILL,), "dt": 60.0, "horizon": 9}
    return Spec(**{**fields, **changes})


def test_a_spec_counts_its_channels_and_is_hashable():
    spec = a_spec()
    assert (spec.n_obs, spec.n_action, spec.n_cost) == (2, 1, 1)
    assert a_spec(cost=()).n_cost == 0
    assert hash(spec) == hash(a_spec(obs=[LEVEL, FLOW]))
    assert spec == a_spec(obs=[LEVEL, FLOW])
    assert spec != a_spec(dt=30.0)
    with pytest.raises(AttributeError):
        spec.dt = 1.0


def test_ends_are_in_order_of_the_channels():
    assert lows((LEVEL, FLOW)) == (0.0, -1.0)
    assert highs((LEVEL, FLOW)) == (2.0, 5.0)
    assert lows(()) == ()


@pytest.mark.parametrize(
    ("low", "high"), [(1.0, 1.0), (2.0, 1.0), (-np.inf, 1.0), (0.0, np.nan), (0.0, np.inf)]
)
def test_a_channel_with_a_bad_range_is_refused_by_name(low, high):
    with pytest.raises(ValueError, match="'level'"):
        Channel("level", "m", low, high)


def test_nameless_channels_are_refused():
    with pytest.raises(ValueError, match="needs a name"):
        Channel("", "m", 0.0, 1.0)
    with pytest.raises(ValueError, match="needs a name"):
        CostChannel("", "1", 0.0, "step")


@pytest.mark.parametrize("limit", [-0.1, np.nan, np.inf])
def test_a_cost_needs_a_finite_limit_that_is_not_negative(limit):
    with pytest.raises(ValueError, match="'spill': limit"):
        CostChannel("spill", "m3", limit, "step")
    assert CostChannel("spill", "m3", 0.0, "step").limit == 0


def test_a_cost_is_per_step_or_episode():
    with pytest.raises(ValueError, match="'step' or 'episode', got 'day'"):
        CostChannel("spill", "m3", 1.0, "day")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"obs": ()}, "at least one observed"),
        ({"action": ()}, "at least one observed and one manipulated"),
        ({"obs": (LEVEL, LEVEL)}, "obs channels share a name: level"),
        ({"cost": (SPILL, SPILL)}, "cost channels share a name: spill"),
        ({"dt": 0.0}, "dt must be a positive number"),
        ({"dt": -1.0}, "dt must be a positive number"),
        ({"dt": np.nan}, "dt must be a positive number"),
        ({"dt": np.inf}, "dt must be a positive number"),
        (
            {"horizon": 0},
            "horizon must be 1 or more, got 0; give the largest number of steps of an episode",
        ),
        ({"horizon": 2.5}, "horizon must be an integer"),
    ],
)
def test_a_bad_spec_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        a_spec(**changes)


names = st.text(min_size=1, max_size=8)
channels = st.builds(
    lambda name, unit, low, width: Channel(name, unit, low, low + width),
    names,
    st.text(max_size=4),
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e6),
)


def some(strategy, least):
    return st.lists(strategy, min_size=least, max_size=3, unique_by=lambda channel: channel.name)


specs = st.builds(
    Spec,
    some(channels, 1),
    some(channels, 1),
    some(
        st.builds(
            CostChannel, names, names, st.floats(0, 1e6), st.sampled_from(["step", "episode"])
        ),
        0,
    ),
    st.floats(1e-3, 1e5),
    st.integers(1, 10**6),
)


@given(specs)
def test_a_spec_survives_json(spec):
    assert spec_from_dict(json.loads(json.dumps(spec_to_dict(spec)))) == spec


def test_a_malformed_dictionary_is_refused():
    data = spec_to_dict(a_spec())
    with pytest.raises(ValueError, match="a spec has the fields"):
        spec_from_dict({name: value for name, value in data.items() if name != "dt"})
    with pytest.raises(ValueError, match="a spec has the fields"):
        spec_from_dict({**data, "colour": "red"})
    with pytest.raises(ValueError, match="malformed"):
        spec_from_dict({**data, "obs": [{"name": "level"}]})
    whole = r"^horizon must be an integer .*, got 2\.9; give an int$"
    with pytest.raises(ValueError, match=whole):
        spec_from_dict({**data, "horizon": 2.9})
    with pytest.raises(ValueError, match="low must be below high"):
        spec_from_dict({**data, "obs": [{"name": "x", "unit": "", "low": 1.0, "high": 0.0}]})


@given(some(channels, 1))
def test_the_unit_interval_is_the_range(some_channels):
    scaling = unit_interval(some_channels)
    ends = np.asarray([lows(some_channels), highs(some_channels)])
    size = np.abs(ends).max(axis=0) / (ends[1] - ends[0])
    scaled = np.asarray(scaling.to_scaled(jnp.asarray(ends, jnp.float32)))
    # Rounding of an end is one part in 10^7 of the end, not of the width.
    assert np.all(np.abs(scaled - [[-1], [1]]) <= 1e-5 + 1e-6 * size)
    assert scaling.offset.dtype == jnp.float32
    assert not scaling.offset.weak_type
    assert not scaling.scale.weak_type
