"""The policy alone as ONNX, run by a runtime that we did not write."""

import numpy as np
import onnxruntime
import pytest

from neorl_agents import load_policy
from neorl_agents.artefact import policy_actions
from neorl_deploy import DeployError
from neorl_deploy.export._onnx import policy_onnx


@pytest.fixture(scope="module")
def candidate(finished_run):
    return load_policy(finished_run / "policies/iql-0.safetensors")


def test_onnx_runtime_acts_as_the_policy_within_a_millionth(candidate):
    session = onnxruntime.InferenceSession(policy_onnx(candidate))
    assert [(one.name, one.shape) for one in session.get_inputs()] == [("obs", [3])]
    rng = np.random.default_rng(3)
    obs = rng.uniform([-1, 200, -3], [3, 480, 9], (500, 3)).astype(np.float32)
    actions = np.stack([session.run(["action"], {"obs": row})[0] for row in obs])
    expected = np.asarray(policy_actions(candidate.policy, obs))
    assert np.abs((actions - expected) / [100.0, 320.0]).max() <= 1e-6
    assert (actions >= [0.0, 280.0]).all()
    assert (actions <= [100.0, 320.0]).all()


def test_equal_policies_give_equal_bytes_and_the_model_says_what_it_is_not(candidate):
    model = policy_onnx(candidate)
    assert model == policy_onnx(candidate)
    assert b"Without the guard of the bundle" in model


def test_a_policy_that_remembers_has_no_onnx_form(candidate, pid):
    remembering = candidate._replace(policy=pid)
    with pytest.raises(DeployError, match="remembers past steps"):
        policy_onnx(remembering)


def test_a_policy_that_acts_otherwise_is_refused(candidate):
    shifted = candidate._replace(parity_actions=candidate.parity_actions + 1)
    with pytest.raises(DeployError, match="differs from it by"):
        policy_onnx(shifted)
