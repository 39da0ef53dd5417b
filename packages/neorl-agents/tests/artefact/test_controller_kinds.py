"""Fitted controllers leave a run as artefacts and as exported programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from neorl_agents import ArtefactError, load_policy, save_policy
from neorl_agents.artefact import policy_actions, read_sealed, write_sealed
from neorl_agents.classical import LQG, MPC, Loop, SmithPID, Task, TunedPID
from neorl_agents.networks import init_mlp
from neorl_agents.policies import ResidualPolicy
from neorl_core import Affine, Channel, Spec, unit_interval
from neorl_core.control import BaseStock, StateFeedback

from ..classical.conftest import single

KINDS = (
    "base_stock",
    "linear_quadratic",
    "predictive",
    "residual",
    "smith_predictor",
    "state_feedback",
    "tracking_pid",
)


@pytest.fixture(scope="module")
def fitted():
    """A policy of every kind, and the specification of one setpoint that is observed."""
    plant = single(0.9, 0.3, 2)
    log = plant.log(6, 60)
    target = np.random.default_rng(0).uniform(-1, 1, size=log.obs.shape)
    log = log._replace(
        obs=np.concatenate([log.obs, target], 1), next_obs=np.concatenate([log.next_obs, target], 1)
    )
    spec = Spec(
        (*plant.spec.obs, Channel("target", "m", -20.0, 20.0)), plant.spec.action, (), 2.0, 60
    )
    task = Task((Loop("level", "valve", "target", high=1.5, rate=0.2),))
    few = {"longest_delay": 3, "orders": 1}
    one = jnp.ones(1)
    ends = -2 * one, 2 * one
    loops = TunedPID(longest_delay=3).fit(log, spec, task).policy
    maps = Affine(jnp.zeros(2), jnp.ones(2)), unit_interval(spec.action)
    network = init_mlp((3, 8, 1), jax.random.key(0))
    return spec, {
        "residual": ResidualPolicy(loops, *maps, network, 0.1 * one, *ends),
        "tracking_pid": loops,
        "smith_predictor": SmithPID(longest_delay=3).fit(log, spec, task).policy,
        "linear_quadratic": LQG(**few).fit(log, spec, task).policy,
        "predictive": MPC(**few, horizon=3, steps=8).fit(log, spec, task).policy,
        "state_feedback": StateFeedback(jnp.ones((1, 2)), jnp.ones(2), one, -2 * one, 2 * one),
        "base_stock": BaseStock(one, jnp.ones((1, 2)), 0 * one, 2 * one),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_controller_comes_back_to_the_bit(kind, fitted, tmp_path):
    spec, policies = fitted
    obs = np.random.default_rng(1).uniform(-2, 2, size=(32, 2)).astype(np.float32)
    path = tmp_path / "controller.safetensors"
    save_policy(path, policies[kind], spec, obs)
    artefact = load_policy(path)
    assert artefact.kind == kind
    assert jax.tree.structure(artefact.policy) == jax.tree.structure(policies[kind])
    for a, b in zip(jax.tree.leaves(artefact.policy), jax.tree.leaves(policies[kind]), strict=True):
        assert a.dtype == b.dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    again = np.asarray(policy_actions(artefact.policy, obs))
    assert again.tobytes() == artefact.parity_actions.tobytes()


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["smith_predictor", "predictive", "residual"])
def test_a_controller_runs_as_an_exported_program(kind, fitted):
    policy = fitted[1][kind]
    start = policy.initial_carry()

    def step(carry, obs):
        carry, action = policy(carry, obs, None)
        return policy.sent(carry, action), action

    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), start)
    leaves, structure = jax.tree.flatten(start)

    def flat(*inputs):
        carry, action = step(jax.tree.unflatten(structure, inputs[:-1]), inputs[-1])
        return (*jax.tree.leaves(carry), action)

    obs = jnp.array([0.2, 0.7])
    program = export.export(jax.jit(flat), platforms=("cpu", "cuda"))(
        *jax.tree.leaves(shapes), jax.ShapeDtypeStruct((2,), jnp.float32)
    )
    loaded = export.deserialize(program.serialize())
    expected = flat(*leaves, obs)
    for a, b in zip(loaded.call(*leaves, obs), expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_file_cannot_name_a_class_of_its_own(fitted, tmp_path):
    spec, policies = fitted
    path = tmp_path / "controller.safetensors"
    obs = np.zeros((32, 2), np.float32)
    save_policy(path, policies["tracking_pid"], spec, obs)
    arrays, header, _ = read_sealed(path, 2**20)
    header["static"]["loops"]["part"] = "Popen"
    write_sealed(path, arrays, {k: v for k, v in header.items() if k != "digest"})
    with pytest.raises(ArtefactError, match="malformed header"):
        load_policy(path)
