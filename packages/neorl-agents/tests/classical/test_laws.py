"""What every fitted policy keeps: one program, batches by vmap, a carry of fixed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.classical import LQG, MPC, SmithPID, TunedPID
from neorl_core import Policy
from neorl_core.control import follow
from neorl_core.testing import no_recompile

from .conftest import single

SETTINGS = {
    "pid": TunedPID(longest_delay=3),
    "smith": SmithPID(longest_delay=3),
    "lqg": LQG(longest_delay=3, orders=1),
    "mpc": MPC(longest_delay=3, orders=1, horizon=3, steps=8),
}


@pytest.fixture(scope="module")
def pairs():
    """Two policies of every kind, fitted on plants of one form with other numbers."""
    plants = single(0.9, 0.3, 2), single(0.8, 0.5, 2, setpoint=-0.5)
    logs = [plant.log(6, 60, seed=seed) for seed, plant in enumerate(plants)]
    return {
        name: [
            settings.fit(log, plant.spec, plant.task).policy
            for plant, log in zip(plants, logs, strict=True)
        ]
        for name, settings in SETTINGS.items()
    }


def first_actions(policy, observations):
    def act(one):
        return policy(policy.initial_carry(), one, None)[1]

    return jax.vmap(act)(observations)


@pytest.mark.parametrize("name", SETTINGS)
def test_another_fit_of_the_same_form_uses_the_same_program(name, pairs):
    obs = jnp.linspace(-1, 1, 4)[:, None]
    one, two = pairs[name]
    assert isinstance(one, Policy)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(one))
    no_recompile(first_actions, (one, obs), (two, 2 * obs))


@pytest.mark.nightly
@pytest.mark.parametrize("name", SETTINGS)
def test_a_batch_is_its_rows_and_the_carry_keeps_its_form(name, pairs):
    policy = pairs[name][0]
    obs = jnp.linspace(-1, 1, 4)[:, None]
    batch = np.asarray(first_actions(policy, obs))
    carry = policy.initial_carry()
    for row, expected in zip(obs, batch, strict=True):
        later, action = policy(carry, row, None)
        np.testing.assert_allclose(action, expected, atol=1e-5)
        for updated in (policy.sent(later, action), follow(policy, later, action)):
            assert jax.tree.structure(updated) == jax.tree.structure(carry)
            for before, after in zip(jax.tree.leaves(carry), jax.tree.leaves(updated), strict=True):
                assert (before.shape, before.dtype) == (after.shape, after.dtype)


@jax.jit
def taken_over(policy, obs, held):
    """The first own action after a hundred periods in which another one held the plant."""

    def step(carry, _):
        carry, _ = policy(carry, obs, None)
        return follow(policy, carry, held), None

    carry, _ = jax.lax.scan(step, policy.initial_carry(), None, length=100)
    return policy(carry, obs, None)[1]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_controller_that_followed_takes_over_without_a_bump(name, pairs):
    # The first plant stands on its setpoint of one at u = 1/3. Observers first have to learn
    # which inputs were on their way.
    action = taken_over(pairs[name][0], jnp.ones(1), jnp.array([1.0 / 3.0]))
    np.testing.assert_allclose(action, [1.0 / 3.0], atol=2e-3)
