"""Nested host data as flat columns with named channels."""

from typing import Any, NamedTuple

import chex
import numpy as np
import pytest

from neorl_envs import DatasetError
from neorl_envs.datasets import flatten_columns


class Pose(NamedTuple):
    position: Any
    speed: Any


def test_every_leaf_becomes_named_channels_in_the_order_of_sorted_keys() -> None:
    rows = np.arange(4.0)
    angles = np.stack([rows, -rows], axis=1)
    image = rows[:, None, None] + np.arange(4).reshape(2, 2)
    nested = {"b": {"speed": rows, "angle": angles}, "a": [rows + 1, (image,)]}
    column, names = flatten_columns(nested)
    assert names == (
        *("a.0", "a.1.0.0.0", "a.1.0.0.1", "a.1.0.1.0", "a.1.0.1.1"),
        *("b.angle.0", "b.angle.1", "b.speed"),
    )
    chex.assert_shape(column, (4, 8))
    expected = dict(zip(names, column.T, strict=True))
    np.testing.assert_array_equal(expected["b.angle.1"], -rows)
    np.testing.assert_array_equal(expected["a.1.0.1.0"], rows + 2)
    np.testing.assert_array_equal(expected["b.speed"], rows)


def test_the_order_of_insertion_does_not_count() -> None:
    one, two = np.zeros(3), np.ones(3)
    first, again = ({"x": one, "y": two}, {"y": two, "x": one})
    chex.assert_trees_all_equal(flatten_columns(first), flatten_columns(again))


def test_a_plain_array_is_a_tree_of_one_leaf() -> None:
    column, names = flatten_columns(np.ones((2, 3), np.int32))
    assert (column.shape, names) == ((2, 3), ("0", "1", "2"))
    assert flatten_columns(np.ones(2))[1] == ("0",)
    assert flatten_columns(Pose(np.ones(2), np.zeros(2)))[0].shape == (2, 2)


REFUSED = {
    "nothing": ({}, "expected at least one array, got none"),
    "text": ({"a": np.array(["x", "y"])}, "a must hold numbers with one row per step"),
    "a number": ({"a": {"b": 3.0}}, r"a\.b must hold numbers with one row per step"),
    "rows": ({"a": np.zeros(3), "b": np.zeros(2)}, "b has 2 rows; expected 3"),
    "one name": ({"a.b": np.zeros(2), "a": {"b": np.zeros(2)}}, r"two channels are called 'a\.b'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_flattened_is_refused_by_name(case: str) -> None:
    nested, message = REFUSED[case]
    with pytest.raises(DatasetError, match=f"^robot: .*{message}"):
        flatten_columns(nested, source="robot")
