"""A signature, once claimed, must be there and right."""

import json

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, x25519

from neorl_deploy import BundleError, DeployError
from neorl_deploy.bundle import read_bundle, read_public_key
from neorl_deploy.export import ExportOptions, export_run
from neorl_deploy.runtime import load_bundle

from ..forged import canonical, checksums


def write_key(path, key=None):
    key = key or ed25519.Ed25519PrivateKey.generate()
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    path.chmod(0o600)
    public = path.with_suffix(".pub.pem")
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return path


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    return write_key(tmp_path_factory.mktemp("keys") / "plant.pem")


@pytest.fixture(scope="module")
def original(finished_run, key, tmp_path_factory):
    out = tmp_path_factory.mktemp("signed") / "plant.bundle"
    return export_run(finished_run, ExportOptions(out=out, sign_key=key)).path


@pytest.fixture
def signed(original, tmp_path):
    import shutil

    return shutil.copytree(original, tmp_path / "plant.bundle")


def test_a_signed_bundle_names_its_key(command, signed, key):
    public = read_public_key(key.with_suffix(".pub.pem"))
    assert read_bundle(signed).signed_by == public
    assert read_bundle(signed, trusted_key=public).signed_by == public
    assert "anybody can sign: only --public-key detects a forger" in command("verify", signed)
    out = command("verify", signed, "--public-key", key.with_suffix(".pub.pem"))
    assert "Every byte is as signed with your key." in out


def test_a_key_that_is_not_there_is_named_with_how_to_make_one(finished_run, tmp_path):
    options = ExportOptions(out=tmp_path / "b.bundle", sign_key=tmp_path / "none.pem")
    with pytest.raises(DeployError, match=r"openssl genpkey -algorithm ed25519 -out .*none\.pem"):
        export_run(finished_run, options)


def test_a_claimed_signature_cannot_be_stripped(signed):
    (signed / "signature.json").unlink()
    with pytest.raises(BundleError, match="claims a signature that is not there"):
        read_bundle(signed)


def test_a_forger_without_the_key_gets_nowhere(signed, key):
    """Without claim and resealed it is an unsigned bundle: refused where a key is demanded."""
    document = json.loads((signed / "manifest.json").read_text())
    document["provenance"]["run"] = "forged"
    (signed / "manifest.json").write_bytes(canonical(document))
    files = {path.name: path.read_bytes() for path in signed.iterdir()}
    (signed / "checksums.json").write_bytes(checksums(files))
    with pytest.raises(BundleError, match="signature does not match"):
        read_bundle(signed)
    files["manifest.json"] = canonical({**document, "signature": None})
    (signed / "manifest.json").write_bytes(files["manifest.json"])
    (signed / "checksums.json").write_bytes(checksums(files))
    with pytest.raises(BundleError, match="does not claim"):
        read_bundle(signed)
    (signed / "signature.json").unlink()
    assert read_bundle(signed).signed_by is None
    trusted = read_public_key(key.with_suffix(".pub.pem"))
    for read in (read_bundle, load_bundle):
        with pytest.raises(BundleError, match="is not signed"):
            read(signed, trusted_key=trusted)


def test_every_byte_of_the_signature_file_counts(signed):
    path = signed / "signature.json"
    data = path.read_bytes()
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x20 if data[position : position + 1].isalpha() else 1
        path.write_bytes(changed)
        with pytest.raises(BundleError, match="signature"):
            read_bundle(signed)


def test_another_key_is_refused(command, signed, tmp_path):
    other = write_key(tmp_path / "other.pem").with_suffix(".pub.pem")
    assert "was demanded" in command.refused("verify", signed, "--public-key", other)


def test_unusable_keys_are_refused(finished_run, tmp_path, key):
    def export_with(path):
        export_run(finished_run, ExportOptions(out=tmp_path / "x.bundle", sign_key=path))

    open_key = write_key(tmp_path / "open.pem")
    open_key.chmod(0o644)
    wrong_kind = write_key(tmp_path / "x25519.pem", x25519.X25519PrivateKey.generate())
    text = tmp_path / "text.pem"
    text.write_text("no key")
    text.chmod(0o600)
    cases = {
        "open to other users": open_key,
        "expected an ed25519 private key": wrong_kind,
        "no unencrypted private key": text,
        "there is no key .*openssl genpkey": tmp_path / "none.pem",
    }
    for message, path in cases.items():
        with pytest.raises(DeployError, match=message):
            export_with(path)
    assert not (tmp_path / "x.bundle").exists()
    with pytest.raises(DeployError, match="expected an ed25519 public key"):
        read_public_key(wrong_kind.with_suffix(".pub.pem"))
    with pytest.raises(DeployError, match="no public key"):
        read_public_key(text)
    with pytest.raises(DeployError, match="No such file"):
        read_public_key(tmp_path / "none.pem")


def test_blanks_between_the_digits_of_a_signature_are_refused(signed, key):
    """``bytes.fromhex`` passes over them, so the same signature would have many spellings."""
    path = signed / "signature.json"
    stored = json.loads(path.read_text())
    stored["signature"] = " ".join(stored["signature"][i : i + 2] for i in range(0, 128, 2))
    path.write_bytes(canonical(stored))
    with pytest.raises(BundleError, match="signature file was changed"):
        read_bundle(signed, trusted_key=read_public_key(key.with_suffix(".pub.pem")))
