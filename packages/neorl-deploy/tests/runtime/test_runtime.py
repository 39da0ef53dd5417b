"""The loaded bundle: total, stateful, and refused where it would act otherwise."""

import io
import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from neorl_deploy import BundleError
from neorl_deploy.bundle import read_bundle
from neorl_deploy.runtime import LastSent, Runtime, load_bundle

from ..forged import canonical, reseal

MIDDLE = np.array([1.0, 330.0, 3.0])


def test_a_step_never_gives_anything_but_a_finite_action_in_the_box(runtime):
    rng = np.random.default_rng(0)
    special = np.array([np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-40, 1e300, 0])
    runtime.reset()
    for _ in range(300):
        obs = np.where(rng.random(3) < 0.3, rng.choice(special, 3), MIDDLE)
        sent = rng.choice(special, 2) if rng.random() < 0.3 else LastSent.UNKNOWN
        decision = runtime.step(obs, sent)
        assert np.isfinite(decision.action).all()
        assert ((decision.action >= [0, 280]) & (decision.action <= [100, 320])).all()
        if not (np.abs(obs) < 3.5e38).all():
            assert "observation_nonfinite" in runtime.flag_names(decision.flags)


def test_the_rate_counts_from_what_was_sent(runtime):
    runtime.reset()
    runtime.step(MIDDLE, LastSent.UNKNOWN)
    decision = runtime.step(MIDDLE, np.array([0.0, 300.0]))
    assert decision.action[0] <= 0.5 * 30 + 1e-5
    assert decision.limits[0] in (0, 8)
    decision = runtime.step(MIDDLE, np.array([100.0, 300.0]))
    assert decision.action[0] >= 100 - 0.5 * 30 - 1e-4


def test_a_last_action_that_nobody_tells_never_switches_the_rate_limit_off(runtime):
    """Never told, and 5 % of the read-backs lost: no command moves faster than the limit."""
    rng = np.random.default_rng(5)
    for share in (0.0, 0.95):
        runtime.reset()
        last, sent, moves, assumed = None, LastSent.UNKNOWN, [], 0
        for _ in range(200):
            decision = runtime.step(MIDDLE + rng.normal(0, [0.3, 10, 0.3]), sent)
            if last is not None:
                moves.append(np.abs(decision.action - last))
            last = decision.action
            sent = last if rng.random() < share else LastSent.UNKNOWN
            assumed += "previous_assumed" in runtime.flag_names(decision.flags)
        assert np.max(moves, axis=0)[0] <= 0.5 * 30
        assert assumed >= 3
    with pytest.raises(TypeError, match="last_sent"):
        runtime.step(MIDDLE)


def test_an_old_measurement_counts_as_lost(runtime):
    runtime.reset()
    fresh = runtime.step(MIDDLE, LastSent.UNKNOWN, ages=np.array([1.0, 29.0, 2.0]), max_age=30.0)
    assert "observation_nonfinite" not in runtime.flag_names(fresh.flags)
    for age in (31.0, np.nan):
        old = runtime.step(MIDDLE, fresh.action, ages=np.array([1.0, age, 2.0]), max_age=30.0)
        assert "observation_nonfinite" in runtime.flag_names(old.flags)
    with pytest.raises(ValueError, match="max_age must be a positive number"):
        runtime.step(MIDDLE, fresh.action, max_age=0.0)


def test_impossible_measurements_are_flagged_and_the_fallback_acts(runtime):
    runtime.reset()
    sent = runtime.step(MIDDLE, LastSent.UNKNOWN).action
    for wrong in (np.full(3, 1e9), np.zeros(3), MIDDLE - [0, 273.15, 0], MIDDLE[[1, 0, 2]]):
        names = runtime.flag_names(runtime.step(wrong, sent).flags)
        assert {"monitor_alarm", "fallback_used"} <= set(names)


def test_reset_starts_an_episode(runtime):
    runtime.reset()
    first = runtime.step(MIDDLE, LastSent.UNKNOWN).action
    for _ in range(5):
        runtime.step(MIDDLE + 0.2, np.array([80.0, 310.0]))
    runtime.reset()
    np.testing.assert_array_equal(runtime.step(MIDDLE, LastSent.UNKNOWN).action, first)


def test_a_returned_action_is_the_callers_own(runtime):
    runtime.reset()
    action = runtime.step(MIDDLE, LastSent.UNKNOWN).action
    action[:] = -1
    assert runtime.step(MIDDLE, LastSent.AS_PROPOSED).action[0] >= 0


def test_wrong_shapes_are_refused(runtime):
    with pytest.raises(ValueError, match=r"obs has shape \(2,\); expected \(3,\)"):
        runtime.step(np.ones(2), LastSent.UNKNOWN)
    with pytest.raises(ValueError, match=r"last_sent has shape \(1, 2\)"):
        runtime.step(np.ones(3), np.ones((1, 2)))


def test_a_value_that_is_no_number_is_refused_by_its_channel(runtime):
    named = dict(zip([channel.name for channel in runtime.manifest.obs], MIDDLE, strict=True))
    last = runtime.manifest.obs[-1].name
    with pytest.raises(ValueError, match=rf"obs must be numbers, got 'Bad' for {last}; give NaN"):
        runtime.step({**named, last: "Bad"}, LastSent.UNKNOWN)
    with pytest.raises(ValueError, match="one number for each of the 3 channels, got 'Bad'"):
        runtime.step("Bad", LastSent.UNKNOWN)


def test_a_step_by_name_is_the_step_in_order(runtime):
    obs = [channel.name for channel in runtime.manifest.obs]
    sent = {channel.name: channel.low for channel in runtime.manifest.action}
    runtime.reset()
    expected = runtime.step(MIDDLE, np.array(list(sent.values())), ages=np.zeros(3))
    runtime.reset()
    named = dict(reversed(list(zip(obs, MIDDLE, strict=True))))
    decision = runtime.step(named, sent, ages=dict.fromkeys(obs, 0.0))
    assert np.array_equal(decision.action, expected.action)
    assert decision.flags == expected.flags
    del named[obs[0]]
    with pytest.raises(ValueError, match=rf"obs must name each .*: {obs[0]}, prssure$"):
        runtime.step({**named, "prssure": 1.0}, LastSent.UNKNOWN)


def test_a_second_step_does_not_trace_again(exported):
    runtime = Runtime(read_bundle(exported))
    runtime.step(MIDDLE, LastSent.UNKNOWN)
    with jax.log_compiles(), pytest.MonkeyPatch.context() as patch:
        compiled = []
        patch.setattr(runtime, "_step", _counting(runtime._step, compiled))
        runtime.step(MIDDLE, LastSent.UNKNOWN)
    assert compiled == [1]


def _counting(step, sizes):
    def counted(*inputs):
        outputs = step(*inputs)
        sizes.append(step._cache_size())
        return outputs

    return counted


def test_the_self_test_passes_here(runtime):
    assert runtime.self_test() <= 1e-6


def test_a_runtime_that_answers_otherwise_is_refused(bundle):
    """The test vectors find a forger who reseals another answer, and a strange compiler."""
    arrays = dict(np.load(bundle / "test_vectors.npz"))
    arrays["single_action"][3, 0] += 0.01
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    reseal(bundle, test_vectors__npz=buffer.getvalue())
    with pytest.raises(BundleError, match=r"\(single\) differ .*: largest difference 1.0e-04"):
        load_bundle(bundle)
    load_bundle(bundle, self_test=False)


@pytest.mark.parametrize("rounding", [1e-3, 1e6, np.inf, np.nan])
def test_no_rounding_that_a_bundle_states_hides_a_wrong_action(bundle, rounding):
    arrays = dict(np.load(bundle / "test_vectors.npz"))
    arrays["single_action"][3, 0] += 0.1
    arrays["single_rounding"][:] = rounding
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    reseal(bundle, test_vectors__npz=buffer.getvalue())
    with pytest.raises(
        BundleError, match=r"differ .*: largest difference (9.0e-04|9.9e-04|1.0e-03)"
    ):
        Runtime(read_bundle(bundle)).self_test()


def test_a_program_that_lost_its_nan_test_is_refused(bundle):
    """As fast math would have it: the finding about a NaN is gone."""
    arrays = dict(np.load(bundle / "test_vectors.npz"))
    arrays["single_flags"] |= np.uint32(2)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    reseal(bundle, test_vectors__npz=buffer.getvalue())
    with pytest.raises(BundleError, match="flags different"):
        Runtime(read_bundle(bundle)).self_test()


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("programs", "calling_convention", 1, "has calling convention 1; this jax"),
        ("programs", "calling_convention", 9, "disagree about the calling convention"),
        ("programs", "platforms", ["cpu", "cuda"], "disagree about the calling convention or the"),
        ("programs", "platforms", ["tpu"], "exported for tpu; this machine runs cpu"),
        ("carry", 0, {"name": "x", "shape": [7], "dtype": "float32"}, "disagree about the carry"),
    ],
)
def test_a_bundle_for_another_machine_is_refused(bundle, section, key, value, message):
    document = json.loads((bundle / "manifest.json").read_text())
    document[section][key] = value
    reseal(bundle, manifest__json=canonical(document))
    with pytest.raises(BundleError, match=message):
        load_bundle(bundle)


def test_beside_an_accelerator_a_bundle_for_processors_runs_on_the_processor(bundle, monkeypatch):
    expected = load_bundle(bundle).step(MIDDLE, LastSent.UNKNOWN)
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    runtime = load_bundle(bundle)
    np.testing.assert_array_equal(runtime.step(MIDDLE, LastSent.UNKNOWN).action, expected.action)


def test_a_bundle_runs_where_equinox_cannot_be_imported(exported):
    code = f"""
import sys
for name in ("equinox", "optax", "neorl_core", "neorl_safety", "neorl_agents", "h5py"):
    sys.modules[name] = None
import numpy as np
from neorl_deploy.runtime import LastSent, load_bundle
runtime = load_bundle({str(exported)!r})
print(runtime.step(np.array([1.0, 330.0, 3.0]), LastSent.UNKNOWN).action.tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len(json.loads(done.stdout)) == 2


def test_a_machine_with_fast_math_is_refused(exported):
    """The real thing: a compiler told that NaN does not exist."""
    flags = "--xla_cpu_enable_fast_math=true --xla_cpu_fast_math_honor_nans=false"
    flags += " --xla_cpu_fast_math_honor_infs=false"
    words = ["verify", str(exported), "--self-test", "--form", "stablehlo"]
    done = subprocess.run(
        [sys.executable, "-m", "neorl_deploy", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "XLA_FLAGS": flags},
    )
    assert done.returncode == 2
    assert "do not run it here (is fast math on?)" in done.stderr


def test_the_base_needs_numpy_only(exported, finished_run):
    """Import, verify and inspect work without any extra; the rest says what to install."""
    code = f"""
import sys
for name in ("jax", "jaxlib", "equinox", "h5py", "cryptography", "safetensors", "neorl_core"):
    sys.modules[name] = None
import pkgutil, importlib
import neorl_deploy
names = [m.name for m in pkgutil.walk_packages(neorl_deploy.__path__, "neorl_deploy.")]
assert {{"neorl_deploy.export._stablehlo", "neorl_deploy.runtime._runtime"}} <= {{*names}}
for name in names:
    # Operations in JAX's words are for `renew` alone, which asks for JAX before it imports them.
    if name not in ("neorl_deploy.__main__", "neorl_deploy.export._jax_operations"):
        importlib.import_module(name)
from neorl_deploy._command.main import main
bundle = {str(exported)!r}
assert main(["verify", bundle]) == 0
assert main(["inspect", bundle]) == 0
assert main(["replay", bundle, {str(finished_run / "dataset.h5")!r}, "--form", "numpy"]) == 2
assert main(["verify", bundle, "--self-test", "--form", "stablehlo"]) == 2
assert main(["renew", bundle, "--out", "renewed.bundle"]) == 2
assert main(["verify", bundle, "--self-test"]) == 0
acting = neorl_deploy.runtime.load_bundle(bundle, form="numpy")
acting.release("the test")
decision = acting.step([1.0, 330.0, 3.0], [40.0, 300.0])
assert 0 <= decision.action[0] <= 100
try:
    neorl_deploy.runtime.load_bundle(bundle)
except neorl_deploy.DeployError as error:
    print(error, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "reading a dataset file needs h5py" in done.stderr
    assert 'pip install "./packages/neorl-deploy[replay]"' in done.stderr
    assert 'pip install "./packages/neorl-deploy[jax]"' in done.stderr
