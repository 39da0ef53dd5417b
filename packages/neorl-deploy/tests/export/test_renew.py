"""Programs made anew from the sealed operations: the same decisions, or nothing is written."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_deploy import DeployError
from neorl_deploy.bundle import read_bundle
from neorl_deploy.export import _jax_operations, _renew, renew_bundle
from neorl_deploy.runtime import OPERATION_NAMES, Runtime, load_bundle

from ..forged import FILES, reseal, seal

KEPT = Path(__file__).parents[1] / "bundle" / "kept" / "jax-0.10.2"


def test_every_operation_has_its_meaning_in_jax_too():
    assert {*_jax_operations.PLAIN, *_jax_operations.WITH_SETTINGS} == OPERATION_NAMES


def test_a_renewed_bundle_decides_as_before_and_names_the_old_one(command, tmp_path):
    out = tmp_path / "line2-2027.bundle"
    said = command("renew", KEPT, "--out", out)
    before, after = read_bundle(KEPT), read_bundle(out)
    assert "On 1000 steps the new program answers as the sealed operations" in said
    assert f"renewed    from sha256:{before.digest}, whose programs were by JAX" in said
    assert "begins stopped, until a release" in said
    entry = after.manifest.document["provenance"]["renewals"]
    assert entry == [
        {
            "digest": f"sha256:{before.digest}",
            "seal": seal(before.manifest.document),
            "jax": before.manifest.jax,
            "calling_convention": before.manifest.calling_convention,
            "signed_by": None,
        }
    ]
    assert after.manifest.jax == jax.__version__
    changed = {"manifest.json", "policy.stablehlo", "initial_carry.stablehlo", "policy.onnx"}
    for name in set(FILES) - changed:
        assert before.files[name] == after.files[name], name
    assert load_bundle(out).self_test(1e-6) <= 1e-6
    old, new = Runtime(before), Runtime(after)
    for obs in np.random.default_rng(3).uniform([0, 0], [2, 40], (50, 2)):
        one, two = old.step(obs, [40.0, 40.0]), new.step(obs, [40.0, 40.0])
        np.testing.assert_allclose(two.action, one.action, atol=1e-4)
        assert (one.flags, one.alarms) == (two.flags, two.alarms)


def test_a_program_that_answers_otherwise_is_refused_with_the_figure(tmp_path, monkeypatch):
    plain = {**_jax_operations.PLAIN, "tanh": lambda x: jnp.tanh(x) * 1.001}
    monkeypatch.setattr(_jax_operations, "PLAIN", plain)
    with pytest.raises(DeployError, match=r"differs from its sealed operations by \d\.\de-0[2-5]"):
        renew_bundle(KEPT, tmp_path / "new.bundle")
    assert list(tmp_path.iterdir()) == []


def test_what_has_no_numpy_form_is_exported_again_and_not_renewed(tmp_path):
    bundle = shutil.copytree(KEPT, tmp_path / "line2.bundle")
    for name in ("operations.json", "weights.npz"):
        (bundle / name).unlink()
    document = json.loads((bundle / "manifest.json").read_text())
    document["programs"].update(
        forms=[], form_of_record="stablehlo", without_numpy="the list cannot hold a fold"
    )
    reseal(bundle, manifest__json=json.dumps(document).encode())
    with pytest.raises(DeployError, match=r"\(the list cannot hold a fold\); export it again"):
        renew_bundle(bundle)


def test_a_signed_bundle_must_be_signed_anew(tmp_path):
    key = tmp_path / "key.pem"
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    key.write_bytes(
        ed25519.Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    key.chmod(0o600)
    source = shutil.copytree(KEPT, tmp_path / "line2.bundle")
    signed = renew_bundle(source, sign_key=key).bundle
    assert signed.path == tmp_path / "line2-renewed.bundle"
    assert signed.signed_by
    with pytest.raises(DeployError, match=f"signed by {signed.signed_by}.* name a key with --sign"):
        renew_bundle(signed.path)
    third = renew_bundle(signed.path, tmp_path / "c.bundle", sign_key=key).bundle
    renewals = third.manifest.document["provenance"]["renewals"]
    assert [renewal["signed_by"] for renewal in renewals] == [None, signed.signed_by]
    assert renewals[1]["digest"] == f"sha256:{signed.digest}"
    assert third.signed_by == signed.signed_by


def test_the_number_of_probes_is_that_of_the_page():
    assert _renew.PROBES == 1_000
