"""Losses by hand on three states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import CQL, IQL, TD3BC
from neorl_agents.algorithms._iql import _scaled_critic_loss, _value_loss
from neorl_agents.algorithms._td3_bc import _actor_loss
from neorl_agents.learning import (
    LearnerState,
    critic_loss,
    regression_weights,
    weighted_regression_loss,
)
from neorl_agents.networks import MLP, GaussianActor, tanh

from .by_hand import KEY, linear, method, rows_of


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


def frozen(parameters=None, targets=None):
    """A state of networks alone, for what takes no gradient step."""
    return LearnerState(parameters or {}, targets or {}, {}, {}, None, {})


class TestThreeStates:
    """Losses by hand on three states, ``s0 -> s1 -> s2 -> end``, rewards 1, 2, 4, discount 0.9.

    Every logged action is 0.5. The values of the twins at it are (11, 21, 31) and (11, 15, 39),
    the same online and behind, and every policy would do 0.5 too.
    """

    CRITICS = ([10.0, 20.0, 30.0, 2.0], [12.0, 16.0, 40.0, -2.0])
    # 1 + 0.9 min(21, 15), 2 + 0.9 min(31, 39) and 4, against the values above.
    SQUARES = (3.5**2 + 8.9**2 + 27**2) / 3 + (3.5**2 + 14.9**2 + 35**2) / 3

    @pytest.fixture
    def mdp(self):
        state = np.eye(3)
        rows = rows_of(
            state,
            np.full((3, 1), 0.5),
            reward=np.array([1.0, 2.0, 4.0]),
            next_obs=np.vstack([state[1:], state[2:]]),
            terminated=np.array([False, False, True]),
            discount=0.9,
        )
        return rows, linear(*self.CRITICS)

    def actor(self, outputs, log_std=-30.0):
        bias = [np.arctanh(0.5)] + [log_std] * (outputs - 1)
        last = {"output": tanh} if outputs == 1 else {}
        return MLP((jnp.zeros((3, outputs)),), (jnp.asarray(bias, float),), **last)

    def test_td3_bc(self, mdp):
        """Row N13: its losses are those worked out by hand on three states."""
        rows, critics = mdp
        learner = TD3BC(discount=0.9, noise_std=0.0)
        state = frozen(targets={"actor": self.actor(1), "critics": critics})
        updates = jax.tree.map(lambda x: x[None], rows)
        target = method("critic_targets")(learner, state, updates, KEY)[0]
        np.testing.assert_allclose(target, [14.5, 29.9, 4.0])
        np.testing.assert_allclose(critic_loss(critics, rows, target)[0], self.SQUARES)
        # The action is the logged one and all values positive: minus alpha, and no distance.
        np.testing.assert_allclose(_actor_loss(self.actor(1), critics, rows, 2.5)[0], -2.5)

    def test_cql(self, mdp):
        """Row N13: its losses are those worked out by hand on three states."""
        rows, critics = mdp
        learner = CQL(discount=0.9)
        state = frozen({"actor": self.actor(2)}, {"critics": critics})
        target = method("critic_target")(learner, state, rows, jnp.ones(()), KEY)
        np.testing.assert_allclose(target, [14.5, 29.9, 4.0], rtol=1e-6)
        # Samples at -1 and 1, as dense as can be: log(2 cosh 2) - 1 above the first, + 1 above
        # the second critic's logged value.
        samples = (jnp.broadcast_to(jnp.asarray([[-1.0], [1.0]]), (3, 2, 1)), jnp.zeros((3, 2)))
        loss, (_, term) = method("critic_loss")(learner, critics, rows, target, samples, None, 3.0)
        soft = np.log(2 * np.cosh(2.0))
        np.testing.assert_allclose(term, soft, rtol=1e-6)
        np.testing.assert_allclose(loss, self.SQUARES + 3 * (2 * soft), rtol=1e-6)

    def test_iql(self, mdp):
        """Row N13: its losses are those worked out by hand on three states."""
        rows, critics = mdp
        # Values 15, 10, 20 against 11, 15, 31: off by -4, 5, 11.
        value = MLP((jnp.asarray([[15.0], [10.0], [20.0]]),), (jnp.zeros(1),))
        q = jnp.asarray([11.0, 15.0, 31.0])
        loss, _ = _value_loss(value, rows, q, 0.7)
        np.testing.assert_allclose(loss, (0.3 * 16 + 0.7 * 25 + 0.7 * 121) / 3)
        # Targets 1 + 0.9 * 10, 2 + 0.9 * 20 and 4.
        loss, _ = _scaled_critic_loss(critics, rows, jnp.asarray([10.0, 20.0, 4.0]), factor=0.5)
        np.testing.assert_allclose(loss, ((1 + 1 + 729) + (1 + 25 + 1225)) / 3 / 2)
        learner = IQL(inverse_temperature=0.1)
        weights = regression_weights(learner, jnp.asarray([-4.0, 5.0, 11.0]), None)
        actor = GaussianActor(self.actor(1), jnp.zeros(1))
        loss, _ = weighted_regression_loss(actor, rows, weights, log_std_range=(-5, 2))
        by_hand = (np.exp(-0.4) + np.exp(0.5) + np.exp(1.1)) / 3 * np.log(2 * np.pi) / 2
        np.testing.assert_allclose(loss, by_hand)
