"""Policies and activations from outside are stored and read by name."""

from typing import NamedTuple

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from neorl_agents import ArtefactError, load_policy, save_policy
from neorl_agents.artefact import POLICY_KINDS, PolicyKind
from neorl_agents.networks import ACTIVATIONS, init_mlp
from neorl_agents.policies import NetworkPolicy
from neorl_core import Affine, InputError

KEY = jax.random.key(0)


class Switch(NamedTuple):
    """On above a threshold of one channel, off below; a policy that the package does not know."""

    on: Array
    off: Array
    threshold: Array

    def initial_carry(self):
        return ()

    def __call__(self, carry, obs, key=None):
        return carry, jnp.where(obs[0] > self.threshold, self.on, self.off)

    def sent(self, carry, action):
        return carry


def switch_static(policy):
    return {"levels": 2}


def switch_template(spec, static):
    assert static == {"levels": 2}
    return Switch(jnp.zeros(spec.n_action), jnp.zeros(spec.n_action), jnp.zeros(()))


SWITCH = PolicyKind(Switch, switch_static, switch_template)


@pytest.fixture
def tables(monkeypatch):
    """Tables without what others registered, of which no other sees what is added; again, empty."""

    def anew():
        for table in (POLICY_KINDS, ACTIVATIONS):
            monkeypatch.setattr(table, "_registered", {})

    anew()
    return anew


def test_a_foreign_policy_comes_back_where_its_kind_is_known(tables, problem, tmp_path):
    low, high = (jnp.asarray([getattr(c, e) for c in problem.spec.action]) for e in ("low", "high"))
    policy, observations = Switch(high, low, jnp.float32(300.0)), problem.log.obs[:32]
    path = tmp_path / "switch.safetensors"
    with pytest.raises(
        TypeError, match=r"a Switch cannot be stored in an artefact.*POLICY_KINDS\.register"
    ):
        save_policy(path, policy, problem.spec, observations)
    POLICY_KINDS.register("test_switch", SWITCH)
    save_policy(path, policy, problem.spec, observations)
    artefact = load_policy(path)
    assert artefact.kind == "test_switch"
    assert isinstance(artefact.policy, Switch)
    assert set(np.unique(artefact.parity_actions[:, 0])) == {0.0, np.float32(3e4)}
    chex.assert_trees_all_equal(artefact.policy, policy)
    tables()
    with pytest.raises(ArtefactError, match=r"not installed here: .* kind 'test_switch'"):
        load_policy(path)


def test_a_registered_activation_is_stored_by_its_name(tables, problem, tmp_path):
    ACTIVATIONS.register("test_swish", jax.nn.swish)
    spec, one = problem.spec, jnp.ones
    network = init_mlp((spec.n_obs, 8, spec.n_action), KEY, activation=jax.nn.swish)
    policy = NetworkPolicy(
        Affine(one(4), one(4)), network, Affine(one(2), one(2)), -one(2), 9 * one(2)
    )
    path = tmp_path / "swish.safetensors"
    save_policy(path, policy, spec, problem.log.obs[:32])
    assert load_policy(path).policy.network.activation is jax.nn.swish
    tables()
    with pytest.raises(ArtefactError, match="unknown activation 'test_swish'"):
        load_policy(path)


class NoPolicy(eqx.Module):
    gain: Array


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Switch, "expected a neorl_agents.artefact.PolicyKind"),
        (SWITCH._replace(policy=NoPolicy), "must be a class with the methods of a Policy"),
        (SWITCH._replace(policy=Switch(1, 2, 3)), "must be a class with the methods of a Policy"),
        (SWITCH._replace(template={}), "its static and its template must be functions"),
    ],
)
def test_what_is_no_kind_is_refused(kind, message):
    with pytest.raises(InputError, match=message):
        POLICY_KINDS.register("test_wrong", kind)


@pytest.mark.parametrize(
    ("activation", "message"),
    [
        (lambda x: x, "a named module-level function, got a lambda"),
        ("relu", "expected a function of an array, got a str"),
        (jnp.sum, "must have the shape and dtype of its argument"),
    ],
)
def test_what_is_no_activation_is_refused(activation, message):
    with pytest.raises(InputError, match=message):
        ACTIVATIONS.register("test_wrong", activation)
