"""Weights of what a policy visits, and shares over limits."""

import numpy as np
import pytest

from neorl_core import Channel, CostChannel, Spec, Transition
from neorl_train.choosing._return_distribution import _over, visit_weights


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_weights_of_an_episode_that_goes_on_are_those_of_the_discounts(dtype):
    """They add up to ``1 / (1 - discount)``; what is beyond the last step is in the second half."""
    weights = visit_weights(np.ones((2, 10), dtype), 0.9)
    np.testing.assert_allclose(weights.sum(axis=1), 10)
    np.testing.assert_allclose(weights[0, :5], 0.9 ** np.arange(5))
    np.testing.assert_allclose(weights[0, 5:] - 0.9 ** np.arange(5, 10), 10 * 0.9**10 / 5)


def test_an_episode_that_has_ended_has_no_weight_beyond():
    alive = np.where(np.arange(10) < 4, 1.0, 0.0)[None]
    weights = visit_weights(alive, 0.9)
    np.testing.assert_allclose(weights[0], 0.9 ** np.arange(10) * alive[0])


COSTS = (CostChannel("energy", "kWh", 20.0, "episode"), CostChannel("peak", "bar", 5.0, "step"))
PLANT = Spec(
    (Channel("x", "m", -1.0, 1.0),), (Channel("u", "%", 0.0, 1.0),), COSTS, dt=1.0, horizon=10
)


@pytest.mark.parametrize("ends", [False, True])
def test_an_even_cost_at_its_limit_is_the_border_and_a_limit_per_step_has_no_share(ends):
    """Two a step reach 20 in ten steps; the sum goes on unless the plant ends its episodes."""
    border = 2 * (1 - 0.9**10 if ends else 1) / (1 - 0.9)
    samples = np.tile(border * np.array([0.5, 0.9, 1.1, 2.0])[:, None, None], (1, 2, 3))
    rows = Transition(*np.zeros((3, 1)), terminated=np.array([ends]))
    share, per_step = _over(PLANT, samples, 0.9, rows, 0.95)
    assert share.value == 0.5
    assert 0 <= share.low < share.value < share.high <= 1
    assert per_step is None
