"""What a masked row holds reaches neither a return nor the choice of the best episodes."""

import jax
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from neorl_agents.sampling import BestEpisodes, returns_to_go
from neorl_core import Transition


def spoilt(log):
    """Anything in the masked rows."""
    return log._replace(reward=np.where(log.mask, log.reward, np.nan))


@settings(max_examples=30)
@given(data=st.data(), discount=st.sampled_from([0.0, 0.75, 1.0]))
def test_returns_are_those_of_the_log_without_the_rows_cut_at_the_gaps(logs, data, discount):
    log = data.draw(logs)
    assume(log.mask.any())
    gap = np.append(~log.mask[1:], False) & ~log.terminated
    rest = log._replace(truncated=log.truncated | gap, mask=None)
    rest = jax.tree.map(lambda column: column[log.mask], rest)
    actual = returns_to_go(spoilt(log), discount=discount)[log.mask]
    np.testing.assert_allclose(actual, returns_to_go(rest, discount=discount), rtol=1e-6, atol=1e-5)


@settings(max_examples=30)
@given(data=st.data())
def test_the_best_episodes_are_ranked_by_the_rows_that_count(logs, data):
    log = data.draw(logs)
    assume(log.mask.any())
    ends = log.terminated | log.truncated
    episode = np.concatenate([[0], np.cumsum(ends)[:-1]])
    of = {n: log.reward[log.mask & (episode == n)] for n in np.unique(episode)}
    ranked = sorted((n for n in of if len(of[n])), key=lambda n: -of[n].sum())
    best = ranked[: int(np.ceil(len(ranked) / 2))]
    kept = BestEpisodes(0.5).tables(spoilt(log))
    np.testing.assert_array_equal(kept.obs[:, 0], np.flatnonzero(np.isin(episode, best)))


def test_a_log_without_a_row_that_counts_is_refused():
    zero, none = np.zeros((2, 1), np.float32), np.zeros(2, bool)
    log = Transition(zero, zero, zero[:, 0], terminated=none, truncated=none, mask=none)
    for draw in (BestEpisodes(0.5).tables, lambda rows: returns_to_go(rows, discount=0.9)):
        with pytest.raises(ValueError, match="every row is masked"):
            draw(log)
        with pytest.raises(ValueError, match="must list terminated and truncated in its `reads`"):
            draw(log._replace(truncated=None, mask=None))
        with pytest.raises(ValueError, match="must list reward in its `reads`"):
            draw(log._replace(reward=None, mask=None))
