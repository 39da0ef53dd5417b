"""Weights of what a policy visits, shares over limits, and what the log does not show."""

import jax
import numpy as np
import pytest

from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import RetuneSettings, learned_plants
from neorl_core import Channel, CostChannel, Spec, Transition
from neorl_core.control import ConstantPolicy
from neorl_envs import collect_log, make
from neorl_train.selection import logged_episodes, return_distribution
from neorl_train.selection._return_distribution import _over, visit_weights


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


def test_a_policy_that_the_log_does_not_show_gets_no_correction():
    """A valve at the end of its range, where no controller of the log ever held it."""
    # The shapes are those of test_select.py, whose programs are used again.
    log = collect_log(make("CSTR-v0"), n_steps=4_000, key=jax.random.key(0))
    settings = RetuneSettings(model=HistoryModelSettings(updates=60))
    plants = learned_plants(log.transitions, log.spec, 0, settings=settings)
    shut = ConstantPolicy(np.array([log.spec.action[0].low], np.float32))
    one = return_distribution(log, logged_episodes(log), shut, plants, updates=100)
    assert one.far > 0.5
    assert not one.near
    assert one.bias.low < one.bias.value < one.bias.high
    assert one.corrected.value == pytest.approx(one.mean.value + one.bias.value)
    widths = [e.high - e.low for e in (one.mean, one.bias, one.corrected)]
    assert widths[2] == pytest.approx(np.hypot(widths[0], widths[1]))


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
