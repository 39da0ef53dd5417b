"""A policy with memory acts from its bundle as it did on the windows that it was trained on."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import save_policy
from neorl_agents.networks import (
    Encoding,
    SequenceShape,
    init_mlp,
    init_network,
    init_sequence_network,
    step_features,
    tanh,
)
from neorl_agents.policies import HistoryPolicy, SequencePolicy
from neorl_agents.sampling import Histories, Rows
from neorl_agents.sampling._histories import windows
from neorl_core import Transition
from neorl_deploy.export import ExportOptions, export_run
from neorl_deploy.runtime import LastSent, Runtime
from neorl_safety.constraints import action_constraints, constraints_to_dict

STEPS, EPISODES, LENGTH = 4, 3, 40


@pytest.fixture(scope="module")
def policy(network):
    encoding = Encoding("gru", STEPS, 3, 2)
    recurrent = init_network(
        (encoding.width, 16, 2), jax.random.key(3), encoding=encoding, output=tanh
    )
    return HistoryPolicy(network.obs, recurrent, network.action, network.low, network.high, STEPS)


@pytest.fixture(scope="module")
def runtime_with_memory(finished_run, policy, spec, log_columns, tmp_path_factory):
    run = tmp_path_factory.mktemp("memory") / "runs" / "0001"
    shutil.copytree(finished_run, run)
    observations = log_columns()["obs"][:40]
    save_policy(run / "policies/iql-0.safetensors", policy, spec, observations, {"seed": 0})
    # No rate limit, so that the guard changes nothing inside the box.
    free = constraints_to_dict(action_constraints(spec, [None, None]))
    (run / "constraints.json").write_text(json.dumps(free))
    return Runtime(export_run(run, ExportOptions(out=run.parent / "plant.bundle")))


@pytest.mark.parametrize("failed", [(), (5, 6, 50)])
def test_the_bundle_acts_as_the_windows_of_the_log(
    runtime_with_memory, policy, log_columns, failed
):
    columns = log_columns(EPISODES, LENGTH)
    obs, action = columns["obs"], columns["action"]
    obs[list(failed), 0] = np.nan
    ends = {name: columns[name] > 0 for name in ("terminated", "truncated")}
    log = Transition(obs, action, columns["reward"], **ends)
    tables = jax.tree.map(jnp.asarray, Histories(Rows(), STEPS).tables(log))
    seen, expected = acted(policy, windows(tables, jnp.arange(len(obs)), steps=STEPS))
    half = np.asarray(policy.high - policy.low) / 2
    assert np.std(expected, axis=0).min() > 0.01 * half.min(), "constant actions prove nothing"
    for row in range(len(obs)):
        if row % LENGTH == 0:
            runtime_with_memory.reset()
            sent = LastSent.UNKNOWN
        decision = runtime_with_memory.step(obs[row], sent)
        sent = action[row]
        held = runtime_with_memory.carry[".policy.window"]
        np.testing.assert_allclose(held, seen[row], atol=1e-6)
        # After a failure the fallback stays in charge for a while, and hands over gently.
        if not failed:
            np.testing.assert_allclose(decision.action / half, expected[row] / half, atol=1e-5)


@jax.jit
def acted(policy, seen):
    """Windows as networks see them, and the actions on them, as training has both."""
    steps = step_features(
        policy.obs.to_scaled(seen.obs),
        policy.action.to_scaled(seen.action),
        seen.obs_known,
        seen.action_known,
    )
    unit = policy.network(steps.reshape(len(steps), -1))
    physical = policy.action.to_physical(unit)
    return steps, jnp.clip(physical, policy.low[None], policy.high[None])


def test_the_manifest_names_the_memory(runtime_with_memory):
    shapes = {entry.name: entry.shape for entry in runtime_with_memory.manifest.carry}
    assert shapes[".policy.window"] == (STEPS, 3 + 2 + 2)
    assert shapes[".policy.sent"] == (3,)
    assert runtime_with_memory.self_test() < 1e-4


@pytest.mark.nightly
def test_a_sequence_policy_acts_from_its_bundle_as_it_does(
    finished_run, network, spec, log_columns, tmp_path
):
    """With and without JAX: it counts what is left of its target by itself."""
    shape = SequenceShape(
        steps=3, aims=1, n_obs=3, n_action=2, n_out=2, n_forecast=0, horizon=LENGTH, width=8,
        layers=2, heads=2,
    )  # fmt: skip
    transformer = jax.tree.map(lambda x: 10 * x, init_sequence_network(shape, jax.random.key(1)))
    counts = init_mlp((8, 8, 1), jax.random.key(2))
    one, none = jnp.ones(()), jnp.zeros(0)
    maps = (network.action, network.low, network.high)
    policy = SequencePolicy(
        network.obs, transformer, counts, *maps, 5 * one, none, one, 0 * one, none
    )
    run = tmp_path / "runs" / "0001"
    shutil.copytree(finished_run, run)
    columns = log_columns(1, LENGTH)
    obs, action = columns["obs"], columns["action"]
    save_policy(run / "policies/iql-0.safetensors", policy, spec, obs[:40], {"seed": 0})
    free = constraints_to_dict(action_constraints(spec, [None, None]))
    (run / "constraints.json").write_text(json.dumps(free))
    bundle = export_run(run, ExportOptions(out=tmp_path / "plant.bundle"))
    assert (tmp_path / "plant.bundle/operations.json").is_file()
    runtime, sent = Runtime(bundle), LastSent.UNKNOWN
    half = np.asarray(policy.high - policy.low) / 2
    step = jax.jit(lambda carry, one, done: policy(policy.sent(carry, done), one, None))
    carry, done = policy.initial_carry(), np.full(2, np.nan, np.float32)
    actions = []
    for row in range(LENGTH):
        carry, expected = step(carry, obs[row], done)
        decision = runtime.step(obs[row], sent)
        np.testing.assert_allclose(decision.action / half, expected / half, atol=1e-5)
        sent = done = action[row]
        actions.append(expected)
    assert np.std(actions, axis=0).min() > 0
