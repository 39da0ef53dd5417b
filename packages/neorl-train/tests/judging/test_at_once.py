"""Programs that factorise matrices run one at a time: two could wait for each other for ever."""

import threading
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from neorl_core.control import ConstantPolicy
from neorl_core.infrastructure import factorises
from neorl_envs import environment_names, make
from neorl_train.judging import _evaluate, rollouts

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


def program(plant, policy):
    return jax.make_jaxpr(rollouts)(plant, policy, jax.random.key(0), jnp.arange(4))


@pytest.mark.parametrize("name", sorted(environment_names()))
def test_a_plant_that_factorises_matrices_is_seen(name):
    plant = make(name)
    policy = ConstantPolicy(jnp.asarray([channel.low for channel in plant.spec.action]))
    assert factorises(program(plant, policy)) == (name in FACTORISE)


def test_a_policy_that_solves_equations_is_seen_within_a_branch_of_its_step():
    plant = make("CSTR-v0")
    assert factorises(program(plant, Solved(jnp.eye(len(plant.spec.action)))))


def most_at_a_time(monkeypatch, policies, meet):
    """The most entries that are evaluated at a time; after the first, each calls ``meet``."""
    running, most = [], []

    def result(environment, entry, *_):
        running.append(1)
        most.append(len(running))
        if entry.name != "0":
            meet()
        running.pop()

    monkeypatch.setattr(_evaluate, "_result", result)
    entries = [
        _evaluate._TestEntry(str(i), "learner", False, (policy,))
        for i, policy in enumerate(policies)
    ]
    plant = make("CSTR-v0")
    _evaluate._results(plant, entries, jax.random.key(0), 4, plant.spec)
    return max(most)


def test_evaluations_run_two_at_a_time_unless_one_factorises(monkeypatch):
    plain = [ConstantPolicy(jnp.full(1, 300.0 + i)) for i in range(5)]
    both = threading.Barrier(2, timeout=60)
    assert most_at_a_time(monkeypatch, plain, both.wait) == 2
    solving = [*plain, Solved(jnp.eye(1))]
    assert most_at_a_time(monkeypatch, solving, lambda: time.sleep(0.05)) == 1
