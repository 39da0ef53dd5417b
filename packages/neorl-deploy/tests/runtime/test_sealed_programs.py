"""Programs that somebody changed, or a manifest that says other things than its programs do."""

import copy
import json
import logging
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from neorl_deploy import BundleError, NotDeployable
from neorl_deploy.bundle import read_bundle
from neorl_deploy.runtime import LastSent, Runtime, load_bundle, open_programs
from neorl_deploy.shadow import read_log, replay

from ..forged import canonical, reseal, seal

PROGRAMS = ("policy.stablehlo", "initial_carry.stablehlo")
MIDDLE = np.array([1.0, 330.0, 3.0])


def manifest_of(bundle):
    return json.loads((bundle / "manifest.json").read_text())


def limits_times_ten(document):
    for record in document["constraints"]["constraints"]:
        for field in ("up", "down"):
            if record.get(field):
                record[field] *= 10


def half_a_box(document):
    for record in document["constraints"]["constraints"]:
        if record["kind"] == "box" and record["channel"] == "valve":
            record["high"] = 50.0


def swap_flags(document):
    flags = document["flags"]
    flags["box_active"], flags["rate_active"] = flags["rate_active"], flags["box_active"]


DISAGREEMENTS = {
    "rates ten times as large": limits_times_ten,
    "no constraint but the range": lambda d: d["constraints"].update(
        constraints=[r for r in d["constraints"]["constraints"] if r["kind"] == "box"]
    ),
    "another period": lambda d: d["spec"].update(dt=5.0),
    "observations reversed": lambda d: d["spec"]["obs"].reverse(),
    "half a box": half_a_box,
    "flags exchanged": swap_flags,
    "no flags": lambda d: d.update(flags={}),
    "other words": lambda d: d["constraint_words"].append("feed never above 3 kg/h"),
    "another fallback": lambda d: d["provenance"]["fallback"].update(words="holds everything"),
    "another latch": lambda d: d["guard"]["supervisor"].update(latch_after=1),
}


@pytest.mark.parametrize("what", DISAGREEMENTS)
def test_a_manifest_that_says_other_things_than_its_programs_is_not_loaded(bundle, what):
    document = manifest_of(bundle)
    DISAGREEMENTS[what](document)
    guard = json.loads((bundle / "guard.json").read_text())
    guard["supervisor"] = document["guard"]["supervisor"]
    reseal(
        bundle,
        manifest__json=canonical(document),
        constraints__json=canonical(document["constraints"]),
        guard__json=canonical(guard),
    )
    with pytest.raises(BundleError, match=r"not sealed with this manifest|stored answers") as error:
        load_bundle(bundle, self_test=False)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["spec"].update(dt=5.0), "move faster than the rate that the bundle states"),
        (half_a_box, "leave the box that the bundle states: valve goes to"),
        (lambda d: d.update(flags={}), "have flags that it does not name"),
        (lambda d: d["constraints"]["channels"].reverse(), "for other channels than the programs"),
        (lambda d: d["constraints"].update(constraints=[]), "a channel has no box"),
    ],
)
def test_numpy_alone_finds_answers_that_break_the_stated_limits(command, bundle, change, message):
    document = manifest_of(bundle)
    change(document)
    constraints = canonical(document["constraints"])
    reseal(bundle, manifest__json=canonical(document), constraints__json=constraints)
    error = command.refused("verify", bundle)
    assert message in error
    assert error.count("\n") == 1


def test_numpy_alone_finds_an_action_that_no_guard_sends(bundle):
    import io

    arrays = dict(np.load(bundle / "test_vectors.npz"))
    for value, message in ((9e9, "leave the range of the actuator"), (np.nan, "is not finite")):
        changed = copy.deepcopy(arrays)
        changed["sequence_action"][7, 1] = value
        buffer = io.BytesIO()
        np.savez(buffer, **changed)
        reseal(bundle, test_vectors__npz=buffer.getvalue())
        with pytest.raises(BundleError, match=message):
            read_bundle(bundle)


def resealed_with(bundle, initial_carry):
    """A forger's own program for the fresh carry, with the right name and shapes."""
    manifest = read_bundle(bundle).manifest

    def program():
        return initial_carry(manifest.carry)

    program.__name__ = f"initial_carry_{seal(manifest.document)}"
    data = export.export(jax.jit(program), platforms=("cpu",))().serialize()
    reseal(bundle, initial_carry__stablehlo=bytes(data))


def test_a_program_that_never_ends_is_refused_in_time(bundle, finished_run):
    def endless(entries):
        forever = jax.lax.while_loop(lambda x: x < 1, lambda x: jnp.sin(x), jnp.float32(0.5))
        return tuple(jnp.zeros(e.shape, e.dtype) + forever.astype(e.dtype) for e in entries)

    resealed_with(bundle, endless)
    with pytest.raises(BundleError, match=r"answer the test vectors within 6 s .* again when this"):
        load_bundle(bundle, time_limit=6)


def test_the_trial_runs_what_was_verified(bundle, exported, monkeypatch):
    """A bundle that is exchanged between its verification and its trial is refused."""
    from neorl_deploy.runtime import _load

    read = _load.read_bundle

    def exchanged(path, **options):
        verified = read(path, **options)
        document = manifest_of(bundle)
        document["verdict"]["sentence"] = "Exchanged."
        reseal(
            bundle,
            manifest__json=canonical(document),
            verdict__json=canonical(document["verdict"]),
        )
        return verified

    monkeypatch.setattr(_load, "read_bundle", exchanged)
    monkeypatch.setattr("neorl_deploy.runtime._load._passed_digests", set())
    with pytest.raises(BundleError, match="was changed while it was loaded"):
        load_bundle(bundle)


def damaged(data, rng):
    """One to eight changes of bytes, a cut, or a piece that was copied elsewhere."""
    raw = bytearray(data)
    kind = rng.integers(4)
    if kind == 0:
        return bytes(raw[: rng.integers(len(raw))])
    if kind == 1:
        begin, at = (int(x) for x in rng.integers(len(raw), size=2))
        raw[at : at + 40] = raw[begin : begin + 40]
        return bytes(raw)
    for place in rng.integers(len(raw), size=rng.integers(1, 9)):
        raw[place] = rng.integers(256)
    return bytes(raw)


@pytest.mark.parametrize("count", [12, pytest.param(300, marks=pytest.mark.nightly)])
def test_a_damaged_program_is_one_line_or_acts_as_it_was_proved(bundle, exported, runtime, count):
    rng, messages = np.random.default_rng(count), []
    good = {name: (exported / name).read_bytes() for name in PROGRAMS}
    for _ in range(count):
        name = PROGRAMS[rng.integers(2)]
        reseal(bundle, **{n.replace(".", "__"): good[n] for n in PROGRAMS})
        reseal(bundle, **{name.replace(".", "__"): damaged(good[name], rng)})
        try:
            Runtime(read_bundle(bundle)).self_test()
        except BundleError as error:
            messages.append(str(error))
    assert len(messages) > count / 2
    assert not any("\n" in message for message in messages)


def test_programs_of_another_bundle_are_not_taken(bundle, exported):
    """Each fits the checksums, but not the manifest beside it."""
    document = manifest_of(bundle)
    document["provenance"]["policy"]["digest"] = "sha256:0"
    reseal(bundle, manifest__json=canonical(document))
    with pytest.raises(BundleError, match="not sealed with this manifest"):
        open_programs(read_bundle(bundle))
    open_programs(read_bundle(exported))


def answering(bundle, answer):
    """The bundle with another verdict."""
    verdict = json.loads((bundle / "verdict.json").read_text()) | {"answer": answer}
    document = manifest_of(bundle) | {"verdict": verdict}
    reseal(bundle, manifest__json=canonical(document), verdict__json=canonical(verdict))
    return bundle


@pytest.fixture
def doubtful(bundle):
    """The bundle with the verdict that nothing can be told."""
    return answering(bundle, "cannot tell")


def test_a_verdict_other_than_deploy_is_logged_at_load_and_refused_on_request(
    doubtful, exported, caplog
):
    with pytest.raises(NotDeployable, match="'cannot tell'; it is not loaded"):
        load_bundle(doubtful, require_deploy=True)
    with caplog.at_level(logging.WARNING, "neorl_deploy.runtime"):
        load_bundle(exported, require_deploy=True, self_test=False)
    assert not any("verdict" in record.getMessage() for record in caplog.records)
    with caplog.at_level(logging.WARNING, "neorl_deploy.runtime"):
        load_bundle(doubtful, self_test=False)
    messages = [record.getMessage() for record in caplog.records]
    assert any("is 'cannot tell': it is for shadow mode only" in line for line in messages)


def test_a_bundle_worth_a_trial_says_that_a_trial_may_close_a_loop(bundle, caplog):
    with caplog.at_level(logging.WARNING, "neorl_deploy.runtime"):
        load_bundle(answering(bundle, "worth a trial"), self_test=False)
    (said,) = [one.getMessage() for one in caplog.records if "verdict" in one.getMessage()]
    assert said.endswith("it is for shadow mode, and for a trial with `serve --trial`")


def lost(runtime, decision):
    return "observation_nonfinite" in runtime.flag_names(decision.flags)


def test_ages_are_never_loosened_and_never_negative(runtime):
    runtime.reset()
    for age in (-1.0, -1e6, -np.inf, np.nan):
        decision = runtime.step(
            MIDDLE, LastSent.UNKNOWN, ages=np.array([1.0, age, 1.0]), max_age=10.0
        )
        assert lost(runtime, decision)
    with pytest.raises(ValueError, match="max_age is given without the ages"):
        runtime.step(MIDDLE, LastSent.UNKNOWN, max_age=10.0)


def test_replay_tries_the_programs_first(bundle, exported, finished_run, monkeypatch):
    """The scan over a log would otherwise be the first to run a program that never ends."""
    tried = []
    monkeypatch.setattr(
        "neorl_deploy.shadow._replay.require_trial", lambda one: tried.append(one.digest)
    )
    read = read_bundle(exported)
    replay(read, read_log(finished_run / "dataset.h5"))
    assert tried == [read.digest]
    shutil.rmtree(bundle)
