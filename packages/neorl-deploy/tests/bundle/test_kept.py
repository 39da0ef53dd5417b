"""A bundle from the oldest JAX that is supported, opened with whatever JAX the tests run with.

Continuous integration runs it with the newest JAX on Python 3.13, and every night without
constraints. ``make_kept.py`` made it.
"""

import datetime
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from neorl_deploy import BundleError
from neorl_deploy.bundle import read_bundle
from neorl_deploy.bundle._promise import (
    JAX_RELEASES,
    WARNED_DAYS,
    promise_text,
    promised_until,
    warning_lines,
)
from neorl_deploy.runtime import Runtime

from ..forged import canonical, reseal

KEPT = Path(__file__).parent / "kept" / "jax-0.10.2"
TODAY = datetime.date(2026, 11, 28)


@pytest.fixture(scope="module")
def kept():
    return read_bundle(KEPT)


@pytest.fixture
def copied(tmp_path):
    return Path(shutil.copytree(KEPT, tmp_path / "kept.bundle"))


def changed(path, change):
    document = json.loads((path / "manifest.json").read_text())
    change(document)
    reseal(path, manifest__json=canonical(document))
    return path


def test_it_opens_and_answers_as_it_did(kept):
    compiled, alone = Runtime(kept), Runtime(kept, "numpy")
    assert compiled.self_test() <= 1e-5
    assert alone.self_test(1e-6) <= 1e-6
    rng, spans = np.random.default_rng(4), np.array([100.0, 100.0])
    for _ in range(60):
        obs, sent = rng.uniform([-0.5, -5], [2.5, 50]), rng.uniform(0, 110, 2)
        one, two = compiled.step(obs, sent), alone.step(obs, sent)
        assert (np.abs(one.action - two.action) / spans).max() <= 1e-5
        assert (one.flags, one.alarms) == (two.flags, two.alarms)


def test_it_names_the_release_and_the_promise(command, kept):
    programs = kept.manifest.document["programs"]
    assert (programs["jax"], programs["promised_until"]) == ("0.10.2", "2026-12-17")
    assert programs["form_of_record"] == kept.manifest.form_of_record == "numpy"
    out = command("verify", KEPT)
    assert "by JAX 0.10.2; a JAX released until 2026-12-17 is promised to open them" in out
    assert "weights.npz, 79 KiB; the form of record" in out
    assert "Warning: its programs are by JAX 0.10.2" in out
    assert "neorl-deploy renew" in out


@pytest.mark.parametrize(
    ("release", "day"),
    [
        ("0.10.2", datetime.date(2026, 12, 17)),
        ("0.11.1", datetime.date(2027, 2, 17)),
        ("0.12.0.1", datetime.date(2027, 4, 20)),
        ("0.99.0", None),
    ],
)
def test_the_promise_is_six_months_from_the_release(release, day):
    assert promised_until(release) == day


def test_the_last_day_of_a_shorter_month_is_taken(monkeypatch):
    monkeypatch.setitem(JAX_RELEASES, "0.12.9", datetime.date(2027, 8, 31))
    assert promised_until("0.12.9") == datetime.date(2028, 2, 29)


@pytest.mark.parametrize(
    ("day", "words"),
    [
        (datetime.date(2026, 12, 17) - datetime.timedelta(WARNED_DAYS + 1), None),
        (datetime.date(2026, 12, 17) - datetime.timedelta(WARNED_DAYS), "released in 60 days or"),
        (TODAY, "released in 19 days or later may refuse or misread them"),
        (datetime.date(2026, 12, 18), "promise ended with the releases of 2026-12-17"),
    ],
)
def test_the_warning_comes_in_time_with_what_to_do(kept, day, words):
    lines = list(warning_lines(kept.manifest, Path("a b.bundle"), day))
    if words is None:
        assert lines == []
    else:
        assert words in lines[0]
        assert "`neorl-deploy renew 'a b.bundle'`" in lines[1]


def test_a_release_that_is_not_known_is_said_to_be_unknown(copied):
    def later(document):
        document["programs"].update(jax="0.99.0", promised_until=None)

    manifest = read_bundle(changed(copied, later)).manifest
    assert "by JAX 0.99.0, of which the day of release, and so its promise, is unknown" in (
        promise_text(manifest)
    )
    assert "is unknown" in next(warning_lines(manifest, copied, TODAY))


def test_a_bundle_from_before_these_fields_opens_and_is_told_from_its_versions(copied):
    def older(document):
        for name in ("jax", "promised_until", "form_of_record"):
            del document["programs"][name]

    operations = json.loads((copied / "operations.json").read_text())
    del operations["seal"]
    (copied / "operations.json").write_text(json.dumps(operations))
    bundle = read_bundle(changed(copied, older))
    assert (bundle.manifest.jax, bundle.manifest.form_of_record) == ("0.10.2", "numpy")
    assert bundle.manifest.promised_until == datetime.date(2026, 12, 17)
    assert Runtime(bundle, "numpy").self_test(1e-6) <= 1e-6


def test_without_a_numpy_form_the_program_is_of_record_and_exporting_again_helps(copied):
    for name in ("operations.json", "weights.npz"):
        (copied / name).unlink()

    def without(document):
        document["programs"].update(
            forms=[], form_of_record="stablehlo", without_numpy="the list cannot hold a fold"
        )

    manifest = read_bundle(changed(copied, without)).manifest
    assert manifest.form_of_record == "stablehlo"
    assert "export it again from its run" in list(warning_lines(manifest, copied, TODAY))[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"form_of_record": "stablehlo"}, "expected 'numpy' with these forms"),
        ({"promised_until": "soon"}, "Invalid isoformat"),
        ({"promised_until": 5}, "malformed"),
        ({"jax": 5}, "jax of programs is not text"),
    ],
)
def test_a_manifest_that_misstates_them_is_refused(copied, change, words):
    with pytest.raises(BundleError, match=words):
        read_bundle(changed(copied, lambda document: document["programs"].update(change)))


def test_the_operations_are_sealed_with_the_manifest_as_the_programs_are(copied):
    bundle = read_bundle(changed(copied, lambda d: d["spec"].update(horizon=50)))
    with pytest.raises(BundleError, match="operations were not sealed with this manifest"):
        Runtime(bundle, "numpy")
    with pytest.raises(BundleError, match="programs were not sealed with this manifest"):
        Runtime(bundle)


def test_a_program_that_another_jax_cannot_read_names_both_releases(copied):
    def by_another(document):
        document["programs"].update(jax="0.11.0")

    (copied / "policy.stablehlo").write_bytes(b"misread")
    bundle = read_bundle(changed(copied, by_another))
    with pytest.raises(BundleError, match=r"it is by jax 0\.11\.0, and this is jax .* renew"):
        Runtime(bundle)
