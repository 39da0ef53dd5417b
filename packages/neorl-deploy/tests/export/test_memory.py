"""A policy with memory acts from its bundle as it did on the windows that it was trained on."""

import json
import shutil
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import CAPS, CDT, FQL, BCQLag, save_policy
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
from neorl_agents.sampling import Histories, Rows, windows
from neorl_agents.testing import sized, statistics_of
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


def sequence_of_one_aim(network, spec, log):
    """One whose transformer and target are large, so that its actions move."""
    shape = SequenceShape(
        steps=3, aims=1, n_obs=3, n_action=2, n_out=2, n_forecast=0, horizon=LENGTH, width=8,
        layers=2, heads=2,
    )  # fmt: skip
    transformer = jax.tree.map(lambda x: 10 * x, init_sequence_network(shape, jax.random.key(1)))
    counts = init_mlp((8, 8, 1), jax.random.key(2))
    one, none = jnp.ones(()), jnp.zeros(0)
    maps = (network.action, network.low, network.high)
    return SequencePolicy(
        network.obs, transformer, counts, *maps, 5 * one, none, one, 0 * one, none
    )


def of_learner(learner, scale):
    """A learner's policy; before any update, with its networks ``scale`` times as large."""

    def made(network, spec, log):
        state = learner.init(spec, statistics_of(log), jax.random.key(4))
        larger = jax.tree.map(lambda x: scale * x, state.parameters)
        return learner.policy(replace(state, parameters=larger))

    return made


SMALL = {"hidden": (16, 16), "batch_size": 8}
POLICIES = {
    "dt": sequence_of_one_aim,
    "cdt": of_learner(sized(CDT(heads=2), hidden=(8, 8), history_steps=3), 8.0),
    "caps": of_learner(sized(CAPS(n_heads=3), **SMALL), 2.0),
    "fql": of_learner(sized(FQL(), **SMALL), 3.0),
    "bcq_lag": of_learner(sized(BCQLag(), **SMALL), 3.0),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_acts_from_its_bundle_as_it_does(
    finished_run, network, spec, log_columns, tmp_path, name
):
    """With and without JAX, over an episode in which the plant receives other actions.

    Policies with budgets or a target count by themselves what is left of them, which their carry
    shows in every step.
    """
    columns = log_columns(EPISODES, LENGTH)
    obs, action = columns["obs"], columns["action"]
    ends = {which: columns[which] > 0 for which in ("terminated", "truncated")}
    log = Transition(obs, action, columns["reward"], 1 + obs[:, :1], **ends)
    log = jax.tree.map(lambda column: column[:96], log)
    policy = POLICIES[name](network, spec, log)
    run = tmp_path / "runs" / "0001"
    shutil.copytree(finished_run, run)
    save_policy(run / "policies/iql-0.safetensors", policy, spec, obs[:40], {"seed": 0})
    free = constraints_to_dict(action_constraints(spec, [None, None]))
    (run / "constraints.json").write_text(json.dumps(free))
    bundle = export_run(run, ExportOptions(out=tmp_path / "plant.bundle"))
    runtimes, sent = [Runtime(bundle, form) for form in ("stablehlo", "numpy")], LastSent.UNKNOWN
    half = np.asarray(network.high - network.low) / 2
    step = jax.jit(lambda carry, one, done: policy(policy.sent(carry, done), one, None))
    carry, done = policy.initial_carry(), np.full(2, np.nan, np.float32)
    actions, remaining = [], []
    for row in range(LENGTH):
        carry, expected = step(carry, obs[row], done)
        for runtime in runtimes:
            decision = runtime.step(obs[row], sent)
            for path, leaf in jax.tree_util.tree_leaves_with_path(carry):
                held = runtime.carry[f".policy{jax.tree_util.keystr(path)}"]
                np.testing.assert_allclose(held, leaf, atol=1e-5, rtol=1e-5)
            np.testing.assert_allclose(decision.action / half, expected / half, atol=1e-5)
        sent = done = action[row]
        actions.append(expected)
        if hasattr(carry, "remaining"):
            remaining.append(float(carry.remaining[-1]))
    assert np.std(actions, axis=0).min() > 0
    assert not carry or len(set(remaining)) > 10, "nothing was counted"
