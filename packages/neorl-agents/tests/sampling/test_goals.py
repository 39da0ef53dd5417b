"""Goals come from the rest of the episode, at distances of the stated distribution."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from neorl_agents.sampling import Goals
from neorl_agents.sampling._goals import truncated_geometric
from neorl_core import Transition


@settings(max_examples=25)
@given(data=st.data(), strategy=st.sampled_from(["future", "final"]))
def test_a_goal_is_reached_later_in_the_same_episode(logs, last_row, drawn, data, strategy):
    log = data.draw(logs)
    result = drawn(Goals(strategy, 0.9), log)
    for row, goal, steps, reward, reached in zip(
        result.rows.obs.ravel(), result.goal.ravel(), result.steps.ravel(),
        result.rows.reward.ravel(), result.rows.terminated.ravel(), strict=True,
    ):  # fmt: skip
        row, place = int(row), int(goal) - 100
        if not log.mask[row]:
            continue
        end = last_row(log, row)
        while not log.mask[row : end + 1].all():
            end -= 1
        assert row <= place <= end
        assert steps == place - row + 1
        assert reached == (place == row)
        assert reward == (0 if reached else -1)
        if strategy == "final":
            assert place == end


@pytest.mark.parametrize("discount", [1.0, 0.8, 0.3])
def test_distances_are_geometric_up_to_the_end(discount):
    """Exact probabilities of every number, by the quantiles of an even grid."""
    u = jnp.asarray((np.arange(20_000) + 0.5) / 20_000, jnp.float32)
    for most in (0, 1, 6):
        left = jnp.full(u.shape, most, jnp.int32)
        actual = np.bincount(
            np.asarray(truncated_geometric(u, left, jnp.float32(discount))), minlength=most + 1
        )
        expected = discount ** np.arange(most + 1)
        np.testing.assert_allclose(actual / 20_000, expected / expected.sum(), atol=2e-4)


def test_draws_follow_that_distribution(drawn):
    number = np.arange(24, dtype=np.float32)
    log = Transition(
        number[:, None], number[:, None], number, next_obs=number[:, None] + 100,
        terminated=np.zeros(24, bool), truncated=np.zeros(24, bool),
    )  # fmt: skip
    actual = [drawn(Goals("future", 0.7), log, n, (2, 512)) for n in range(8)]
    steps = np.concatenate([g.steps[g.rows.obs[..., 0] == 20] for g in actual])
    expected = 0.7 ** np.arange(4)
    counts = np.bincount(steps - 1, minlength=4)
    assert stats.chisquare(counts, expected / expected.sum() * len(steps)).pvalue > 1e-3


def test_bad_settings_are_refused_by_name():
    with pytest.raises(
        ValueError, match=r"Goals\.strategy must be 'future' or 'final', got 'episode'"
    ):
        Goals("episode")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Goals\.discount must be in \(0, 1\], got 0"):
        Goals(discount=0)
    with pytest.raises(ValueError, match="must list next_obs"):
        Goals().tables(Transition(np.zeros((3, 1)), np.zeros((3, 1)), np.zeros(3)))
