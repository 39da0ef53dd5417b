"""The time of one action: a compiled policy beside the same mathematics on bare arrays."""

import time

import jax
import jax.numpy as jnp

from neorl_agents import TD3BC
from neorl_agents.testing import make_problem, sized

CALLS = 400
SLOWEST = 4.0
"""Times the bare program. The larger part is what JAX does with the policy's leaves."""


def test_an_action_takes_little_longer_than_its_products_of_matrices():
    """Row E07: one observation at a time; the least of many calls in turn, on any machine."""
    problem = make_problem()
    learner = sized(TD3BC(), hidden=(256, 256))
    statistics = problem.statistics
    state = learner.init(problem.spec, statistics, jax.random.key(0))
    policy, obs = learner.policy(state), jnp.zeros(problem.spec.n_obs)
    carry = policy.initial_carry()
    weights = [
        (jnp.zeros((n_in, n_out)), jnp.zeros(n_out))
        for n_in, n_out in ((obs.size, 256), (256, 256), (256, problem.spec.n_action))
    ]
    act = jax.jit(lambda policy, carry, obs: policy(carry, obs, None))
    bare = jax.jit(_products)
    least = {"policy": float("inf"), "bare": float("inf")}
    for _ in range(CALLS):
        for name, call in (
            ("policy", lambda: act(policy, carry, obs)),
            ("bare", lambda: bare(weights, obs)),
        ):
            jax.block_until_ready(call())
            began = time.perf_counter()
            jax.block_until_ready(call())
            least[name] = min(least[name], time.perf_counter() - began)
    assert least["policy"] < SLOWEST * least["bare"], least


def _products(weights, x):
    for matrix, bias in weights[:-1]:
        x = jax.nn.relu(x @ matrix + bias)
    matrix, bias = weights[-1]
    return jnp.tanh(x @ matrix + bias)
