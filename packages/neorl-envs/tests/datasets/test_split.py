from typing import Any

import jax
import numpy as np
import pytest

from neorl_core import Spec
from neorl_envs import Dataset
from neorl_envs.datasets import split_episodes


def test_a_split_partitions_the_episodes(toy_spec: Spec, random_log: Any) -> None:
    log = random_log(toy_spec, 500, 0)
    first, rest = split_episodes(log, 0.8, jax.random.key(1))
    assert first.n_episodes == round(0.8 * log.n_episodes)
    assert first.n_episodes + rest.n_episodes == log.n_episodes
    returns = np.concatenate([first.episode_returns(), rest.episode_returns()])
    np.testing.assert_array_equal(np.sort(returns), np.sort(log.episode_returns()))
    again, _ = split_episodes(log, 0.8, jax.random.key(1))
    assert again.content_hash == first.content_hash
    other, _ = split_episodes(log, 0.8, jax.random.key(2))
    assert other.content_hash != first.content_hash
    assert first.attributes["split"]["of"] == log.content_hash
    # In order of time, so that a split of a recording is a recording.
    starts = [part.transitions.action[part.episode_starts, 0] for part in (first, log)]
    where = [np.flatnonzero(starts[1] == start)[0] for start in starts[0]]
    assert where == sorted(where)


def test_both_sides_of_a_split_have_an_episode(toy: Dataset) -> None:
    for fraction in (0.01, 0.99):
        first, rest = split_episodes(toy, fraction, jax.random.key(0))
        assert min(first.n_episodes, rest.n_episodes) == 1


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1.0, float("nan")])
def test_a_split_outside_its_range_is_refused(toy: Dataset, fraction: float) -> None:
    with pytest.raises(ValueError, match="fraction must be between 0 and 1"):
        split_episodes(toy, fraction, jax.random.key(0))


def test_a_single_episode_cannot_be_split(toy: Dataset) -> None:
    single = toy.select_episodes(np.array([0]))
    with pytest.raises(ValueError, match="at least two episodes, got 1"):
        split_episodes(single, 0.5, jax.random.key(0))
