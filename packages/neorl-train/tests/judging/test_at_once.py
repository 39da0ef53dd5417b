"""Programs that factorise matrices run one at a time: two could wait for each other for ever."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from neorl_core.control import ConstantPolicy
from neorl_envs import environment_names, make
from neorl_train.judging import rollouts
from neorl_train.judging._evaluate import LAPACK, _primitives

FACTORISE = {"PowerGrid-v0", "RobotAssembly-v0"}
"""Plants that solve equations: of a network's currents, and of a robot's joints."""


class Solved(eqx.Module):
    """A policy that solves linear equations in every step, as predictive control does."""

    weights: jax.Array

    def initial_carry(self):
        return ()

    def sent(self, carry, action):
        return carry

    def __call__(self, carry, obs, key=None):
        scaled = self.weights + jnp.eye(len(self.weights)) * jnp.abs(obs[0])
        return carry, jax.lax.cond(
            obs[0] > 0, jnp.linalg.solve, jnp.matmul, scaled, self.weights[0]
        )


def operations(plant, policy):
    traced = jax.make_jaxpr(rollouts)(plant, policy, jax.random.key(0), jnp.arange(4))
    return set(_primitives(traced.jaxpr))


@pytest.mark.parametrize("name", sorted(environment_names()))
def test_a_plant_that_factorises_matrices_is_seen(name):
    plant = make(name)
    policy = ConstantPolicy(jnp.asarray([channel.low for channel in plant.spec.action]))
    assert LAPACK.isdisjoint(operations(plant, policy)) == (name not in FACTORISE)


def test_a_policy_that_solves_equations_is_seen_within_a_branch_of_its_step():
    plant = make("CSTR-v0")
    width = len(plant.spec.action)
    assert {"lu", "triangular_solve"} <= operations(plant, Solved(jnp.eye(width)))
