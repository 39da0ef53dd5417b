"""The average of several policies acts as their mean, each with a memory of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import load_policy, save_policy
from neorl_agents.networks import init_mlp, largest
from neorl_agents.policies import (
    AveragePolicy,
    CategoricalPolicy,
    EpsilonGreedyPolicy,
    GaussianPolicy,
    NetworkPolicy,
    SquashedGaussianPolicy,
    average_policy,
)
from neorl_core import Channel, InputError, Spec
from neorl_core.control import PID, ConstantPolicy
from neorl_core.testing import finite_grad, no_recompile

from .test_network_policy import act, policy

STEPS = 5


def pid(gain: float) -> PID:
    """A loop with an integral part, which depends on the actions that the plant received."""
    one = jnp.ones(2)
    return PID(
        kp=gain * one, ki=0.1 * gain * one, kd=0 * one, tau=one, setpoint=0 * one,
        bias=0 * one, low=-5 * one, high=5 * one, dt=jnp.asarray(1.0),
        override_below=jnp.zeros(0), override_cap=jnp.zeros(0), measured=(0, 1),
    )  # fmt: skip


def run(one, obs, applied):
    """Actions along one sequence of observations and applied actions."""

    def step(carry, row):
        carry, action = one(carry, row[0], None)
        return one.sent(carry, row[1]), action

    return jax.lax.scan(step, one.initial_carry(), (obs, applied))[1]


@pytest.mark.parametrize(
    "members",
    [[policy(0), policy(1), policy(2)], [pid(1.0), pid(3.0)], [policy(0), pid(2.0)]],
    ids=["networks", "controllers with memory", "both"],
)
def test_it_acts_as_the_mean_of_its_members_step_by_step(members):
    rng = np.random.default_rng(0)
    obs = jnp.asarray(rng.normal(size=(4, STEPS, 3)), jnp.float32)
    applied = jnp.asarray(rng.uniform(-1, 1, size=(4, STEPS, 2)), jnp.float32)
    along = jax.jit(jax.vmap(run, in_axes=(None, 0, 0)))
    each = np.stack([np.asarray(along(one, obs, applied), np.float64) for one in members])
    assert np.std(each, axis=0).max() > 0.1, "equal members prove nothing"
    mean = along(average_policy(members), obs, applied)
    np.testing.assert_allclose(mean, each.mean(axis=0), rtol=1e-5, atol=1e-6)


def test_another_controllers_action_is_reported_to_every_member():
    members, action = [pid(1.0), pid(3.0)], jnp.asarray([2.0, -1.0])
    average = average_policy(members)
    carry, _ = average(average.initial_carry(), jnp.ones(3))
    followed = average.follow(carry, action)
    for one, own, after in zip(members, carry, followed, strict=True):
        jax.tree.map(np.testing.assert_array_equal, one.follow(own, action), after)


@pytest.mark.parametrize("count", [2, 3, 7, 49])
def test_rounding_does_not_take_it_out_of_the_range_of_its_members(count):
    edge = jnp.asarray([0.1, -3.3], jnp.float32)
    action = act(average_policy([ConstantPolicy(edge)] * count), jnp.zeros(3))
    np.testing.assert_array_equal(action, edge)


def test_a_member_without_an_answer_leaves_none():
    unknown = ConstantPolicy(jnp.asarray([jnp.nan, 1.0]))
    action = act(average_policy([ConstantPolicy(jnp.ones(2)), unknown]), jnp.zeros(3))
    np.testing.assert_array_equal(action, [np.nan, 1.0])


def test_other_weights_use_the_same_program_and_the_gradient_is_finite():
    first, second = (AveragePolicy((policy(i), policy(i + 1))) for i in (0, 2))
    no_recompile(act, (first, jnp.ones(3)), (second, jnp.zeros(3)))
    finite_grad(lambda obs: act(first, obs), jnp.asarray([[300.0, 0, 0], [1e4, 1e4, 1e4]]))


def test_it_comes_back_from_a_file_to_the_bit(tmp_path):
    channels = tuple(Channel(name, "1", -1e3, 1e3) for name in "abc")
    spec = Spec(channels, (Channel("u", "%", 0.0, 100.0), Channel("v", "1", -1.0, 1.0)), (), 1.0, 9)
    average = average_policy([policy(0), pid(1.0)])
    obs = np.random.default_rng(1).normal(size=(32, 3)).astype(np.float32)
    save_policy(tmp_path / "mean.safetensors", average, spec, obs)
    artefact = load_policy(tmp_path / "mean.safetensors")
    assert artefact.kind == "average"
    assert jax.tree.structure(artefact.policy) == jax.tree.structure(average)
    jax.tree.map(np.testing.assert_array_equal, artefact.policy, average)


def choosing() -> NetworkPolicy:
    one = policy()
    network = init_mlp((3, 8, 2), jax.random.key(0), output=largest)
    return NetworkPolicy(one.obs, network, one.action, one.low, one.high)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([policy()], "an average needs at least two policies, got 1"),
        ([GaussianPolicy(policy(), jnp.zeros(2))] * 2, "GaussianPolicy draws its actions"),
        ([SquashedGaussianPolicy(policy(), (-5.0, 2.0))] * 2, "SquashedGaussianPolicy draws"),
        ([CategoricalPolicy(policy())] * 2, "CategoricalPolicy draws its actions"),
        ([EpsilonGreedyPolicy(policy(), jnp.asarray(0.1))] * 2, "EpsilonGreedyPolicy draws"),
        ([policy(), choosing()], "this NetworkPolicy chooses one of several channels"),
    ],
)
def test_what_has_no_mean_is_refused(members, message):
    with pytest.raises(InputError, match=message):
        average_policy(members)
