"""Dataclasses of plain data and back, and every refusal with its place."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neorl_core import InputError
from neorl_core.infrastructure import Binder


@dataclasses.dataclass(frozen=True)
class Tag:
    name: str
    low: float
    role: Literal["obs", "action"] = "obs"


@dataclasses.dataclass(frozen=True)
class Sampling:
    period: float
    steps: int = 1
    exact: bool = False


@dataclasses.dataclass(frozen=True)
class Plant:
    file: str
    sampling: Sampling
    tags: tuple[Tag, ...] = ()
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)
    note: str | None = None
    further: Any = None


BINDER = Binder(keys={"tags": "tag"})
WHOLE = {"file": "a.csv", "sampling": {"period": 60}, "tag": [{"name": "x", "low": 0}]}
numbers = st.floats(allow_nan=False)
plants = st.builds(
    Plant,
    file=st.text(),
    sampling=st.builds(Sampling, numbers, st.integers(), st.booleans()),
    tags=st.lists(st.builds(Tag, st.text(), numbers, st.sampled_from(["obs", "action"]))).map(
        tuple
    ),
    limits=st.dictionaries(st.text(), numbers),
    note=st.none() | st.text(),
)


@given(plants)
def test_what_is_written_is_read_again(plant):
    def number(value):
        return float(value) if value in ("inf", "-inf") else value

    binder = dataclasses.replace(BINDER, complete=True, number=number)
    assert binder.bound(Plant, json.loads(json.dumps(binder.plain(plant)))) == plant


def test_integers_paths_and_lists_are_taken_for_what_they_can_stand_for():
    plant = BINDER.bound(Plant, {**WHOLE, "file": pathlib.Path("a.csv"), "further": {"any": [1]}})
    assert plant == Plant("a.csv", Sampling(60.0), (Tag("x", 0.0),), further={"any": [1]})
    assert type(plant.sampling.period) is float


def test_an_instance_gives_what_the_data_leave_out():
    plant = Plant("a.csv", Sampling(60.0, 7))
    result = BINDER.bound(plant, {"sampling": {"period": 5}, "limits": {"x": 1}})
    assert result == Plant("a.csv", Sampling(5.0, 7), limits={"x": 1.0})


def test_only_what_differs_from_the_defaults_is_written_where_that_is_wanted():
    plant = Plant("a.csv", Sampling(math.inf), (Tag("x", 0.0, "action"),))
    assert BINDER.plain(plant, changed_only=True) == {
        "file": "a.csv",
        "sampling": {"period": "inf"},
        "tag": [{"name": "x", "low": 0.0, "role": "action"}],
    }
    assert BINDER.plain([np.array([1.0, np.nan]), True]) == [[1.0, None], True]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sampling": {"period": "60"}}, "sampling.period must be a number, got '60'"),
        ({"sampling": {"period": True}}, "sampling.period must be a number, got True"),
        ({"sampling": {"period": 1, "steps": 1.5}}, "sampling.steps must be an integer, got 1"),
        ({"sampling": {"period": 1, "exact": 1}}, "sampling.exact must be true or false, got 1"),
        (
            {"sampling": {"peroid": 1, "period": 1}},
            "unknown key in [sampling] 'peroid'; did you mea",
        ),
        ({"smapling": 1}, "unknown key 'smapling'; did you mean 'sampling'? known: file, sampling"),
        ({"sampling": 3}, "sampling must be a table, got 3"),
        ({"file": 3}, "file must be text, got 3"),
        ({"tag": "x"}, "tag must be a list, got 'x'"),
        ({"limits": {"x": None}}, "limits.x must be a number, got None"),
        ({"tag": [{"name": "x", "low": "-"}]}, "tag 'x'.low must be a number, got '-'"),
        ({"tag": [{"name": 3, "low": 0}]}, "tag[0].name must be text, got 3"),
        (
            {"tag": [{"name": "x", "low": 0, "role": "acton"}]},
            "unknown value of tag 'x'.role: 'acton'; did you mean 'action'? known: obs, action",
        ),
        ({"tag": [{"name": "x"}], "sampling": {}}, "sampling.period, tag 'x'.low are missing"),
        ({"file": list("x" * 50)}, "file must be text, got ['x', 'x', 'x', 'x', 'x', 'x', 'x',"),
    ],
)
def test_a_fault_is_named_with_its_place(change, words):
    with pytest.raises(InputError) as error:
        BINDER.bound(Plant, {**WHOLE, **change})
    assert words in str(error.value)
    assert "; " in str(error.value)
    assert len(str(error.value)) < 150


def test_everything_that_is_missing_is_named_at_once():
    with pytest.raises(
        InputError, match=r"^file, sampling\.period are missing; give each a value$"
    ):
        BINDER.bound(Plant, {})
    with pytest.raises(InputError, match=r"^sampling\.steps, sampling\.exact, tag 'x'\.role, lim"):
        dataclasses.replace(BINDER, complete=True).bound(Plant, WHOLE)


def test_a_caller_may_bring_types_and_reasons_of_its_own():
    def special(hint, value, where):
        return value * 2 if hint is int else NotImplemented

    def unknown(where, key):
        raise InputError(f"{where}.{key} moved to another file")

    binder = Binder(special=special, unknown=unknown)
    assert binder.bound(Sampling, {"period": 1, "steps": 4}).steps == 8
    with pytest.raises(InputError, match=r"sampling\.zone moved to another file"):
        binder.bound(Sampling(1.0), {"zone": 1}, "sampling")
