"""Statistics of several data sets are those of all rows; those of ranges are of a uniform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neorl_core import (
    Channel,
    CostChannel,
    DataStatistics,
    FieldStatistics,
    InputError,
    Spec,
)
from neorl_core.statistics import merge_statistics, range_statistics

UNITS = np.array([1.0, 1e5, 1e-6])
SPEC = Spec(
    obs=(
        Channel("p", "Pa", 1e5, 3e5),
        Channel("T", "K", 300.0, 400.0),
        Channel("x", "1", 0.0, 1.0),
    ),
    action=(Channel("u", "%", 0.0, 100.0),),
    cost=(CostChannel("c", "1", 2.0, "episode"),),
    dt=1.0,
    horizon=50,
)


def of_rows(rows: np.ndarray) -> FieldStatistics:
    numbers = (len(rows), rows.mean(0), rows.std(0), rows.min(0), rows.max(0))
    return FieldStatistics(*(jnp.asarray(x, jnp.float32) for x in numbers))


def summary(rows: np.ndarray) -> DataStatistics:
    return DataStatistics(*[of_rows(rows)] * 6)


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    seed=st.integers(0, 2**31),
    far=st.floats(-100, 100),
)
def test_merged_statistics_are_those_of_all_rows(sizes, seed, far):
    rng = np.random.default_rng(seed)
    parts = [(rng.normal(size=(n, 3)) + far * i) * UNITS for i, n in enumerate(sizes)]
    merged = merge_statistics([summary(part) for part in parts])
    expected = of_rows(np.concatenate(parts))
    for name in FieldStatistics._fields:
        mine, theirs = getattr(merged.obs, name), getattr(expected, name)
        scale = 1.0 if name == "count" else np.maximum(np.abs(np.concatenate(parts)).max(0), 1e-12)
        np.testing.assert_allclose(mine / scale, theirs / scale, atol=3e-6, err_msg=name)


def test_merging_is_the_same_compiled_and_mapped():
    rng = np.random.default_rng(0)
    one, other = (summary(rng.normal(size=(n, 3)) * UNITS) for n in (7, 30))
    eager = merge_statistics([one, other])
    stacked = [jax.tree.map(lambda x: jnp.stack([x, x]), part) for part in (one, other)]
    for merged in (
        jax.jit(lambda a, b: merge_statistics([a, b]))(one, other),
        jax.tree.map(lambda x: x[1], jax.vmap(lambda a, b: merge_statistics([a, b]))(*stacked)),
    ):
        for a, b in zip(jax.tree.leaves(eager), jax.tree.leaves(merged), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_count_of_millions_keeps_a_narrow_spread_on_a_large_mean():
    half = FieldStatistics(*(jnp.float32(x) for x in (8e6, 1e5, 0.5, 99_998, 100_002)))
    merged = merge_statistics([DataStatistics(*[half] * 6)] * 2)
    np.testing.assert_allclose(merged.reward.std, 0.5, rtol=1e-6)
    assert float(merged.reward.count) == 16e6


def test_what_one_site_does_not_know_is_not_known_of_all():
    whole = summary(np.random.default_rng(0).normal(size=(7, 3)) * UNITS)
    ended = whole._replace(terminated=of_rows(np.array([0.0, 1.0])))
    assert float(merge_statistics([ended, ended]).terminated.mean) == 0.5
    assert merge_statistics([ended, whole]).terminated is None


def test_what_cannot_be_merged_is_refused():
    with pytest.raises(InputError, match="no statistics to merge"):
        merge_statistics([])
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match=r"obs has the shapes \(2,\), \(3,\)"):
        merge_statistics([summary(rng.normal(size=(4, 3))), summary(rng.normal(size=(4, 2)))])


def test_ranges_count_as_uniform_and_give_way_to_data():
    ranges = range_statistics(SPEC)
    draws = np.random.default_rng(0).uniform(300.0, 400.0, size=200_000)
    np.testing.assert_allclose(ranges.obs.mean[1], draws.mean(), rtol=1e-3)
    np.testing.assert_allclose(ranges.obs.std[1], draws.std(), rtol=1e-2)
    np.testing.assert_array_equal(ranges.action.max, [100.0])
    assert float(ranges.obs.count) == 0
    rows = np.random.default_rng(1).normal(size=(9, 3))
    data = DataStatistics(of_rows(rows), *range_statistics(SPEC)[1:])
    merged = merge_statistics([ranges, data])
    for mine, theirs in zip(merged.obs, data.obs, strict=True):
        np.testing.assert_array_equal(mine, theirs)
