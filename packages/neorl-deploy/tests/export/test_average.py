"""The average of several networks is sealed like one network, in every form of its members."""

import json
import shutil

import numpy as np
import onnxruntime
import pytest

from neorl_agents import load_policy, save_policy
from neorl_agents.artefact import policy_actions
from neorl_agents.policies import average_policy
from neorl_deploy.bundle import read_bundle
from neorl_deploy.export import ExportOptions, export_run
from neorl_deploy.runtime import LastSent, Runtime
from neorl_safety.constraints import action_constraints, constraints_to_dict


@pytest.fixture(scope="module")
def bundle(finished_run, spec, log_columns, tmp_path_factory):
    run = tmp_path_factory.mktemp("average") / "runs" / "0001"
    shutil.copytree(finished_run, run)
    members = [load_policy(run / f"policies/iql-{seed}.safetensors").policy for seed in (0, 1)]
    observations = log_columns()["obs"][:40]
    save_policy(run / "policies/iql-mean.safetensors", average_policy(members), spec, observations)
    # No rate limit, so that the guard changes nothing inside the box.
    free = constraints_to_dict(action_constraints(spec, [None, None]))
    (run / "constraints.json").write_text(json.dumps(free))
    out = run.parent / "plant.bundle"
    options = ExportOptions(out=out, policy="iql-mean", onnx=True)
    return read_bundle(export_run(run, options).path), members


@pytest.mark.parametrize("form", ["stablehlo", "numpy", "onnx"])
def test_each_form_acts_as_the_mean_of_both_networks(bundle, log_columns, form):
    sealed, members = bundle
    obs = log_columns()["obs"][40:80]
    each = np.stack([np.asarray(policy_actions(one, obs)) for one in members])
    assert np.abs(each[0] - each[1]).max() > 1, "equal networks prove nothing"
    if form == "onnx":
        session = onnxruntime.InferenceSession(sealed.files["policy.onnx"])
        actions = [np.asarray(session.run(["action"], {"obs": row})[0]) for row in obs]
    else:
        runtime = Runtime(sealed, form)
        actions, sent = [], LastSent.UNKNOWN
        for row in obs:
            sent = runtime.step(row, sent).action
            actions.append(sent)
    difference = (np.stack(actions) - each.mean(axis=0)) / [100.0, 320.0]
    assert np.abs(difference).max() <= 1e-5
