"""Sequences stay in their episode, and every legal start is as likely as any other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from neorl_agents.sampling import Sampler, Sequences
from neorl_core import Transition

STEPS = 4


@settings(max_examples=25)
@given(data=st.data(), padded=st.booleans())
def test_no_sequence_crosses_an_episode_boundary(logs, last_row, drawn, data, padded):
    log = data.draw(logs)
    sampler = Sequences(STEPS, padded=padded)
    try:
        result = drawn(sampler, log)
    except ValueError as error:
        assert "the log has no sequence of 4 steps" in str(error)  # noqa: PT017
        starts = [last_row(log, i) - i + 1 >= STEPS and log.mask[i] for i in range(24)]
        assert not any(starts if not padded else log.mask)
        return
    assert result.obs.shape == (2, 32, STEPS, 1)
    for rows, mask in zip(
        result.obs.reshape(-1, STEPS), result.mask.reshape(-1, STEPS), strict=True
    ):
        first = int(rows[0])
        end = last_row(log, first)
        assert log.mask[first]
        for step in range(STEPS):
            inside = first + step <= end
            assert rows[step] == min(first + step, end)
            assert mask[step] == (inside and log.mask[first + step])
            assert inside or padded


@pytest.mark.parametrize("padded", [True, False])
def test_every_legal_start_is_as_likely_as_any_other(drawn, padded):
    ends = np.isin(np.arange(24), [4, 5, 8, 16])
    mask = ~np.isin(np.arange(24), [1, 18])
    log = Transition(
        np.arange(24.0)[:, None], np.zeros((24, 1)), np.zeros(24),
        terminated=ends, truncated=ends & False, mask=mask,
    )  # fmt: skip
    sampler = Sequences(STEPS, padded=padded)
    starts = np.concatenate(
        [drawn(sampler, log, number, (2, 512)).obs[:, :, 0, 0].ravel() for number in range(8)]
    )
    counts = np.bincount(starts.astype(int), minlength=24)
    last = [4] * 5 + [5] + [8] * 3 + [16] * 8 + [23] * 7
    legal = [mask[i] and (padded or last[i] - i + 1 >= STEPS) for i in range(24)]
    assert not counts[~np.array(legal)].any()
    assert stats.chisquare(counts[legal]).pvalue > 1e-3


def test_draws_hang_on_key_and_number_alone_and_map(drawn):
    log = Transition(
        np.arange(24.0)[:, None], np.zeros((24, 1)), np.zeros(24),
        terminated=np.zeros(24, bool), truncated=np.zeros(24, bool),
    )  # fmt: skip
    sampler = Sequences(STEPS)
    assert isinstance(sampler, Sampler)
    tables = jax.tree.map(jnp.asarray, sampler.tables(log))
    key = jax.random.key(0)
    mapped = jax.vmap(lambda n: sampler.draw(tables, n, key, (2, 32)))(jnp.arange(3))
    for number in range(3):
        np.testing.assert_array_equal(mapped.obs[number], drawn(sampler, log, number).obs)
    assert (mapped.obs[0] != mapped.obs[1]).any()


def test_a_log_that_does_not_say_where_episodes_end_is_refused():
    with pytest.raises(ValueError, match="terminated and truncated"):
        Sequences(2).tables(Transition(np.zeros((3, 1)), np.zeros((3, 1)), np.zeros(3)))
