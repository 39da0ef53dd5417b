"""Rows of a rollout hold what was asked for, whatever guard and plant made of it."""

import jax
import jax.numpy as jnp
import numpy as np

from neorl_core.control import ConstantPolicy
from neorl_safety.constraints import action_constraints
from neorl_train.training import Collection
from neorl_train.training._plant_sources import ProposalRecorder, begin_episodes, collect_step


def test_a_rollout_holds_what_was_asked_for_and_a_buffer_what_the_plant_received(toy):
    """Behind a guard that lets the action rise by a tenth a step."""
    plant = toy.Line(noise=0.0, horizon=3, trip=4.0)
    high = float(plant.spec.action[0].high)
    beyond_range = ConstantPolicy(jnp.asarray([high]))
    collection = Collection(
        environment=plant,
        constraints=action_constraints(plant.spec, [(0.1 / plant.spec.dt, 0.1 / plant.spec.dt)]),
        fallback=ConstantPolicy(jnp.asarray([0.0])),
        penalty_weights=None,
        spec=plant.spec,
        episodes=2,
    )

    def actions(asking):
        policy = collection.guarded(ProposalRecorder(beyond_range, 1) if asking else beyond_range)
        running = begin_episodes(collection, policy, jax.random.key(0))

        def step(running, key):
            running, rows, counts = collect_step(collection, policy, running, key)
            return running, (rows.action, counts.filtered)

        return jax.lax.scan(step, running, jax.random.split(jax.random.key(1), 4))[1]

    drawn, filtered = jax.jit(actions, static_argnums=0)(True)
    received, as_many = jax.jit(actions, static_argnums=0)(False)
    np.testing.assert_array_equal(drawn, np.full((4, 2, 1), high))
    assert np.max(received) < high
    np.testing.assert_array_equal(filtered, as_many)
    assert np.all(np.asarray(filtered) > 0)
