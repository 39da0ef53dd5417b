"""The containers and protocols: Step, Trajectory, Transition, DataStatistics, FieldStatistics."""

import inspect

import jax
import jax.numpy as jnp
import pytest

from neorl_core import (
    Channel,
    DataStatistics,
    Environment,
    FieldStatistics,
    Policy,
    Spec,
    Step,
    Trajectory,
    Transition,
)
from neorl_core.control import (
    PID,
    BaseStock,
    ConstantPolicy,
    PIDCarry,
    StateFeedback,
    UniformPolicy,
)
from neorl_core.costs import MultiplierState

ONE, ROW = jnp.ones(1), jnp.ones((1, 2))
POLICIES = {
    "pid": PID(ONE, ONE, ONE, ONE, ONE, ONE, -ONE, ONE, jnp.float32(1), ONE[:0], ONE[:0], (1,)),
    "feedback": StateFeedback(ROW, jnp.ones(2), ONE, -ONE, ONE),
    "stock": BaseStock(ONE, ROW, 0 * ONE, ONE),
    "constant": ConstantPolicy(ONE),
    "uniform": UniformPolicy(-ONE, ONE),
}


class Tank:
    """The smallest environment: a level that the action fills."""

    spec = Spec(
        (Channel("level", "m", 0.0, 1.0),),
        (Channel("flow", "m/s", -1.0, 1.0),),
        (),
        dt=1.0,
        horizon=3,
    )

    def reset(self, params, key):
        return jnp.zeros(1), jnp.zeros(1)

    def step(self, params, state, action, key):
        level = state + action * self.spec.dt
        no = jnp.zeros((), bool)
        return level, Step(level, level, -level[0], jnp.zeros(0), action, no, no, ())


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_every_policy_of_core_is_one(policy):
    assert isinstance(policy, Policy)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(policy))
    carry = policy.initial_carry()
    after, action = jax.jit(lambda p, c, o, k: p(c, o, k))(
        policy, carry, jnp.ones(2), jax.random.key(0)
    )
    assert action.shape == (1,)
    assert jax.tree.structure(after) == jax.tree.structure(carry)
    sent = jax.jit(lambda p, c, a: p.sent(c, a))(policy, after, action)
    assert jax.tree.structure(sent) == jax.tree.structure(carry)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_policies_are_immutable(policy):
    field = next(iter(inspect.signature(type(policy)).parameters))
    with pytest.raises(AttributeError):
        setattr(policy, field, 0)


def test_a_batch_of_policies_is_a_vmap():
    many = jax.vmap(ConstantPolicy)(jnp.arange(6.0).reshape(3, 2))
    _, actions = jax.vmap(lambda p, obs: p((), obs, None), in_axes=(0, None))(many, jnp.ones(4))
    assert actions.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


def test_what_lacks_a_function_is_no_policy_and_no_environment():
    assert not isinstance(len, Policy)
    assert not isinstance(Tank(), Policy)
    assert not isinstance(POLICIES["pid"], Environment)
    assert isinstance(Tank(), Environment)


def test_an_environment_and_a_policy_compose_in_one_scan():
    env, policy = Tank(), ConstantPolicy(jnp.asarray([0.25]))

    def act(loop, key):
        state, obs, carry = loop
        carry, action = policy(carry, obs, key)
        state, step = env.step((), state, action, key)
        return (state, step.obs, policy.sent(carry, step.applied)), step.reward

    state, obs = env.reset((), jax.random.key(0))
    _, rewards = jax.lax.scan(
        act, (state, obs, policy.initial_carry()), jax.random.split(jax.random.key(1), 3)
    )
    assert rewards.tolist() == [-0.25, -0.5, -0.75]


@pytest.mark.parametrize(
    "container", [Transition, Step, FieldStatistics, DataStatistics, PIDCarry, MultiplierState]
)
def test_containers_are_trees_of_their_fields(container):
    fields = container._fields
    filled = container(*[jnp.float32(i) for i in range(len(fields))])
    assert issubclass(container, tuple)
    assert len(jax.tree.leaves(filled)) == len(fields)
    doubled = jax.jit(lambda tree: jax.tree.map(lambda leaf: 2 * leaf, tree))(filled)
    assert isinstance(doubled, container)
    assert [float(leaf) for leaf in doubled] == [2.0 * i for i in range(len(fields))]


def test_a_trajectory_is_a_transition_and_optional_fields_may_be_none():
    assert Trajectory is Transition
    bare = Transition(ONE, ONE, ONE)
    assert len(jax.tree.leaves(bare)) == 3
    assert bare[3:] == (None,) * 6
    ends = Transition(ONE, ONE, ONE, next_obs=ONE, terminated=ONE > 2)
    doubled = jax.jit(lambda rows: jax.tree.map(lambda leaf: leaf[None], rows))(ends)
    assert doubled.next_obs.shape == (1, 1)
    assert doubled.terminated.dtype == bool
    assert doubled.truncated is None
    assert Transition._fields == (
        "obs", "action", "reward", "cost", "next_obs", "next_action",
        "terminated", "truncated", "mask",
    )  # fmt: skip
    assert Step._fields == (
        "obs", "final_obs", "reward", "cost", "applied", "terminated", "truncated", "info",
    )  # fmt: skip
