"""Strict JSON: canonical writing, reading that rejects every ambiguity, and a document's head."""

import json
import math
from pathlib import Path
from typing import Any

from neorl_deploy._errors import BundleError, DeployError

# Strict JSON: canonical writing, and reading that rejects every ambiguity.


def dump_canonical(value: Any) -> bytes:
    """The canonical form of a value: sorted keys, two spaces, no NaN, a newline at the end."""
    text = json.dumps(value, sort_keys=True, indent=2, allow_nan=False, ensure_ascii=False)
    return f"{text}\n".encode()


def dump_compact(value: Any) -> bytes:
    """As :func:`dump_canonical`, but on one line; for long tables of numbers."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
    )
    return f"{text}\n".encode()


def parse_strict(data: bytes, source: str) -> Any:
    """Parses JSON and rejects NaN, infinities, repeated keys and invalid UTF-8.

    A number such as ``1e999``, which overflows to infinity, is rejected too, and so is a lone
    surrogate, which no UTF-8 text can contain.

    Raises:
        BundleError: One line that names ``source``.
    """
    try:
        value = json.loads(
            data.decode("utf-8"),
            parse_constant=_no_constant,
            parse_float=_finite,
            object_pairs_hook=_no_repeats,
        )
        if b"\\u" in data:  # a lone surrogate can pass the decoding only as an escape
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except (UnicodeError, ValueError, RecursionError) as error:
        raise BundleError(f"{source} is not valid JSON: {error}") from error


def read_json(path: Path) -> Any:
    """Reads a JSON document of a run; a missing or damaged one is a :class:`DeployError`."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise DeployError(f"{path} is missing; is {path.parent} a finished run?") from error
    except OSError as error:
        raise DeployError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DeployError(f"{path} is not valid JSON ({error}); the run is damaged") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large for a floating-point number")
    return number


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ValueError(f"a key is repeated among {sorted(names)}")
    return dict(pairs)


# The head of a document, ``{"format": "neorl-run", "version": 1}``, read without neorl-core.


def head(kind: str, version: int) -> dict[str, Any]:
    """The first two fields of a document: ``"bundle"`` gives the format ``"neorl-bundle"``."""
    return {"format": f"neorl-{kind}", "version": version}


def require_head(
    document: Any, kind: str, version: int, source: str, error: type[DeployError] = DeployError
) -> dict[str, Any]:
    """Returns a document of this kind and version; for another, ``error`` names ``source``."""
    if not isinstance(document, dict):
        raise error(f"{source} holds no JSON object, expected one of format neorl-{kind}")
    expected = head(kind, version)
    if document.get("format") != expected["format"]:
        raise error(
            f"{source} has format {document.get('format')!r}, expected {expected['format']!r}; "
            "is it the right file?"
        )
    stored = document.get("version")
    if type(stored) is not int or stored != version:
        raise error(
            f"{source} has version {stored!r} of {expected['format']}, this neorl-deploy reads "
            f"{version}; use the version that wrote it, or write it again"
        )
    return document
