"""Step after step of hostile inputs: the form for NumPy alone decides as the compiled program.

The guarded policy has everything that once had no such form: a gated recurrent memory (a scan), two
linear rows with a row on a measurement (a search that loops), monitors that sort, slide and branch.
"""

import json
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import save_policy
from neorl_agents.networks import Encoding, init_network, tanh
from neorl_agents.policies import HistoryPolicy
from neorl_deploy.export import ExportOptions, export_run
from neorl_deploy.runtime import Runtime
from neorl_safety.constraints import constraints_to_dict, declared_constraints
from neorl_safety.guards import GuardSettings, default_settings, settings_to_dict
from neorl_safety.monitoring import (
    NamedMonitor,
    formula_monitor,
    frozen_monitor,
    mahalanobis_monitor,
    neighbour_monitor,
    read_formula,
)

DEVIATION = 1e-5
"""Largest difference of an action, as a fraction of the size of its channel."""
SPANS = np.array([100.0, 320.0])

LIMITS = [
    {"kind": "rate", "channel": "valve", "up": 0.5, "down": 0.5},
    {"kind": "rate", "channel": "jacket", "up": 0.2, "down": 0.2},
    {"kind": "while", "obs": "level", "above": 1.8, "channel": "valve", "high": 20.0},
    {"kind": "sum", "sum": {"valve": 1.0, "jacket": 0.5}, "at_most": 210.0},
    {"kind": "sum", "sum": {"valve": 1.0, "jacket": -1.0}, "at_least": -260.0, "at_most": -225.0},
    {"kind": "sum", "sum": {"valve": 1.0}, "plus": {"pressure": 5.0}, "at_most": 70.0},
    {"kind": "rest", "channel": "jacket", "seconds": 90.0},
]


@pytest.fixture(scope="module")
def looping_bundle(finished_run, network, spec, log_columns, tmp_path_factory):
    run = tmp_path_factory.mktemp("looping") / "runs" / "0001"
    shutil.copytree(finished_run, run)
    obs = log_columns()["obs"]
    encoding = Encoding("gru", 4, 3, 2)
    recurrent = init_network(
        (encoding.width, 16, 2), jax.random.key(3), encoding=encoding, output=tanh
    )
    policy = HistoryPolicy(network.obs, recurrent, network.action, network.low, network.high, 4)
    save_policy(run / "policies/iql-0.safetensors", policy, spec, obs[:40], {"seed": 0})
    limits = constraints_to_dict(declared_constraints(spec, LIMITS))
    (run / "constraints.json").write_text(json.dumps(limits))
    formula = read_formula(
        "always[0 s, 300 s] (temperature <= 390 K or eventually[0 s, 90 s] (level >= 0.4 m))", spec
    )
    default = default_settings(spec)
    monitors = (
        *default.monitors,
        NamedMonitor("frozen", frozen_monitor(spec, 20)),
        NamedMonitor("novelty", _with_threshold(mahalanobis_monitor(obs), 12.0)),
        NamedMonitor("neighbours", _with_threshold(neighbour_monitor(obs, keep=30), 12.0)),
        NamedMonitor("formula", formula_monitor(formula, spec)),
    )
    guard = settings_to_dict(GuardSettings(default.supervision, monitors), spec)
    (run / "guard.json").write_text(json.dumps(guard))
    return export_run(run, ExportOptions(out=run.parent / "plant.bundle"))


def _with_threshold(monitor, threshold):
    return eqx.tree_at(lambda m: m.threshold, monitor, jnp.float32(threshold))


def test_it_has_the_form_and_its_list_loops_branches_and_sorts(looping_bundle):
    document = looping_bundle.manifest.document["programs"]
    assert (document["forms"], document["without_numpy"]) == (["numpy"], "")
    operations = looping_bundle.files["operations.json"]
    kinds = {entry["op"] for entry in json.loads(operations)["operations"]}
    assert {"scan", "branch", "largest", "part"} <= kinds
    assert '"while"' in operations.decode()
    assert Runtime(looping_bundle, "numpy").self_test(1e-6) <= 1e-6


def hostile_steps(rng, spec, count):
    """Observations and last actions: calm stretches as in the log, then losses and wild numbers.

    In a calm stretch the policy acts, as no monitor alarms; hostile ones lose sensors, jump, and
    report numbers that no plant sends.
    """
    low, high = np.array([[c.low, c.high] for c in spec.obs]).T
    ends = np.array([[c.low, c.high] for c in spec.action]).T
    beyond = ends + np.diff(ends, axis=0) * [[-1], [1]]
    bad = [np.nan, np.inf, -np.inf, 1e30, -1e30, 1e-40, 0.0]
    place, hostile = np.array([0.5, 0.42, 0.45]), False
    for _ in range(count):
        if rng.uniform() < 0.05:
            hostile = rng.uniform() < 0.3
            place = rng.uniform(size=3) if hostile else np.array([0.5, 0.42, 0.45])
        place = np.clip(place + rng.normal(0, 0.03 if hostile else 0.003, 3), 0, 1)
        obs, sent = low + (high - low) * place, None
        if rng.uniform() < (0.2 if hostile else 0.02):
            obs[rng.integers(3)] = rng.choice(bad)
        if hostile and rng.uniform() < 0.05:
            obs = low + (high - low) * rng.uniform(-1, 2, 3)
        if rng.uniform() < (0.3 if hostile else 0.03):
            sent = rng.uniform(*(beyond if hostile else ends))
            if hostile and rng.uniform() < 0.5:
                sent[rng.integers(2)] = rng.choice(bad)
        yield obs.astype(np.float32), sent


def flat(carry):
    """Every number of a carry in one array, since a comparison of each array costs more time."""
    return np.concatenate([np.ravel(array).astype(np.float64) for array in carry.values()])


def require_close(alone, compiled, before, given, told):
    """Requires equal memories, up to rounding.

    A sum of numbers that no plant sends, such as the integral of a fallback that has met 1e30, is
    as exact as its largest summand: what is left of it is compared with that.
    """
    summands = np.abs([*before, *given])
    largest = summands[np.isfinite(summands)].max()
    wild = np.maximum(np.abs(alone), np.abs(compiled)) > 1e6
    for part, atol in ((~wild, 1e-4), (wild, 4 * np.finfo(np.float32).eps * largest)):
        np.testing.assert_allclose(alone[part], compiled[part], rtol=1e-4, atol=atol, err_msg=told)


@pytest.mark.parametrize("count", [2000, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_every_step_decides_as_the_compiled_program(looping_bundle, spec, count):
    """Each step begins in both forms from the same state, and ends in the same one."""
    compiled, alone = Runtime(looping_bundle), Runtime(looping_bundle, "numpy")
    rng, worst, seen = np.random.default_rng(55), 0.0, 0
    acted, proposed = 0, np.array([50.0, 300.0])
    for obs, sent in hostile_steps(rng, spec, count):
        last = proposed if sent is None else sent
        before = flat(compiled.carry)
        one = compiled.step(obs, last)
        two = alone.step(obs, last)
        worst = max(worst, float((np.abs(one.action - two.action) / SPANS).max()))
        assert worst <= DEVIATION, (obs, last, one, two)
        findings = np.uint32(compiled.findings)
        assert (one.flags & findings, one.alarms) == (two.flags & findings, two.alarms)
        require_close(flat(alone.carry), flat(compiled.carry), before, [*obs, *last], str(one))
        proposed, seen = one.action, seen | one.flags
        acted += not one.flags & compiled.manifest.flags["fallback_used"]
        if rng.uniform() < 0.05:
            for runtime in (compiled, alone):
                runtime.release("the test")
        alone.restore_words(compiled.words)
    names = compiled.manifest.flag_names(seen)
    print(f"{count} steps: {worst:.1e} of a channel's size, {acted} by the policy, {names}")
    assert {"rows_active", "rows_infeasible", "fallback_used", "monitor_alarm"} <= set(names)
    assert count / 10 < acted < count, "policy and fallback both act"
