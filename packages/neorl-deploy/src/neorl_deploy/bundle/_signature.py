"""An optional ed25519 signature over the checksum list (extra ``sign``)."""

import re
import stat
from pathlib import Path
from typing import Any

from neorl_deploy._errors import BundleError, DeployError, needs
from neorl_deploy.bundle._strict_json import dump_canonical, head, parse_strict

ALGORITHM = "ed25519"
CONTEXT = b"neorl-bundle-signature-v1\0"
"""Prefixed to the signed data, so that a signature is valid only for a bundle."""


REMOVAL = b"neorl-audit-removal-v1\0"
"""As :data:`CONTEXT`, for the removal of old files of an audit log."""


class Signer:
    """A private key, ready for signing.

    Args:
        path: An unencrypted ed25519 private key in PEM form, readable only by its owner.

    Raises:
        DeployError: If the file is missing, readable by others, or contains another kind of key.
    """

    def __init__(self, path: Path) -> None:
        self._key = _load_private_key(path)
        self.public_key: str = self._key.public_key().public_bytes_raw().hex()

    @property
    def claim(self) -> dict[str, str]:
        """The claim for the manifest: a bundle that claims a signature must have it."""
        return {"algorithm": ALGORITHM, "public_key": self.public_key}

    def sign(self, checksums: bytes) -> bytes:
        """The signature file for a checksum list."""
        return _signature_file(self.claim, self._key.sign(CONTEXT + checksums).hex())

    def sign_removal(self, removal: bytes) -> str:
        """The signature, in hexadecimal, of the removal of old files of an audit log."""
        return self._key.sign(REMOVAL + removal).hex()


def is_signed_removal(public_key: str, signature: Any, removal: bytes) -> bool:
    """Whether a key has signed a removal.

    Raises:
        DeployError: If ``cryptography`` is not installed.
    """
    digits = isinstance(signature, str) and re.fullmatch("[0-9a-f]{128}", signature)
    return bool(digits) and _is_valid(public_key, str(signature), REMOVAL + removal)


def require_signature(
    path: Path, claim: Any, signature: bytes | None, checksums: bytes, trusted_key: str | None
) -> None:
    """Raises unless every claimed signature is present and valid.

    Args:
        path: The bundle, for messages.
        claim: Claim of the manifest: ``None``, or algorithm and public key.
        signature: Content of the signature file, ``None`` if there is none.
        checksums: Content of the checksum list.
        trusted_key: Hexadecimal public key that must have signed; ``None`` accepts any claimed
            key, which proves integrity but not who signed.

    Raises:
        BundleError: If a claimed signature is missing or wrong, an unclaimed one is present, or the
            key is not the trusted one.
        DeployError: If a signature must be checked and ``cryptography`` is not installed.
    """
    if claim is None:
        if signature is not None:
            raise BundleError(f"{path} has a signature that its manifest does not claim")
        if trusted_key is not None:
            raise BundleError(f"{path} is not signed; a signature by {trusted_key} was demanded")
        return
    if signature is None:
        raise BundleError(f"{path} claims a signature that is not there; fetch the bundle again")
    if trusted_key is not None and claim["public_key"] != trusted_key.lower():
        raise BundleError(
            f"{path} is signed by {claim['public_key']}; a signature by {trusted_key} was demanded"
        )
    stored = parse_strict(signature, f"{path}: the signature")
    value = stored.get("signature") if isinstance(stored, dict) else None
    # Check the exact number of digits: `bytes.fromhex` would ignore blanks between them.
    digits = isinstance(value, str) and re.fullmatch("[0-9a-f]{128}", value)
    if not digits or signature != _signature_file(claim, str(value)):
        raise BundleError(f"{path}: the signature file was changed or damaged")
    if not _is_valid(claim["public_key"], str(value), CONTEXT + checksums):
        raise BundleError(f"{path}: the signature does not match the bundle")


def read_public_key(path: Path) -> str:
    """The hexadecimal form of an ed25519 public key in PEM form.

    Raises:
        DeployError: If the file cannot be read or contains another kind of key.
    """
    serialization, ed25519, _ = _cryptography()
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise DeployError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise DeployError(f"{path} holds no public key in PEM form") from error
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise DeployError(f"{path} holds a {type(key).__name__}; expected an ed25519 public key")
    return key.public_bytes_raw().hex()


def _load_private_key(path: Path) -> Any:
    serialization, ed25519, _ = _cryptography()
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise DeployError(f"{path} is open to other users; chmod 600 it, or make a new key")
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except FileNotFoundError as error:
        raise DeployError(
            f"there is no key {path}; `openssl genpkey -algorithm ed25519 -out {path}` makes one"
        ) from error
    except OSError as error:
        raise DeployError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        if isinstance(error, DeployError):
            raise
        raise DeployError(f"{path} holds no unencrypted private key in PEM form") from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise DeployError(f"{path} holds a {type(key).__name__}; expected an ed25519 private key")
    return key


def _is_valid(public_key: str, signature: str, message: bytes) -> bool:
    _, ed25519, invalid = _cryptography()
    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
        key.verify(bytes.fromhex(signature), message)
    except (ValueError, invalid):
        return False
    return True


def _signature_file(claim: dict[str, str], signature: str) -> bytes:
    return dump_canonical({**head("bundle-signature", 1), **claim, "signature": signature})


def _cryptography() -> tuple[Any, Any, Any]:
    with needs("a signature", "sign"):
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    return serialization, ed25519, InvalidSignature
