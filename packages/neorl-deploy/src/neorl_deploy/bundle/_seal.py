"""The seal: a digest in the names of a bundle's programs that ties them to the manifest."""

import hashlib
from collections.abc import Mapping
from typing import Any

from neorl_deploy.bundle._strict_json import dump_canonical

SEALED_FIELDS = ("spec", "carry", "flags", "limits", "constraints", "constraint_words", "guard")
"""Fields of the manifest that describe what the programs do."""
CONTROLLERS = ("policy", "fallback")
"""Entries of the provenance that describe the controllers inside the programs."""


def seal(document: Mapping[str, Any]) -> str:
    """The SHA-256 of everything that a manifest states about its programs, in hexadecimal digits.

    The export writes it into the names of the programs, and the loader compares it with the
    manifest. This detects later changes of limits, channels, period, flags, monitors or
    descriptions. It does not detect a forger who creates new programs; only a required signing key
    does. Fields that name the programs are ignored.
    """
    described = {name: document[name] for name in SEALED_FIELDS}
    described |= {name: document["provenance"][name] for name in CONTROLLERS}
    return hashlib.sha256(dump_canonical(described)).hexdigest()


def program_names(document: Mapping[str, Any]) -> tuple[str, str]:
    """The names of the step program and of the fresh-carry program."""
    digest = seal(document)
    return f"step_{digest}", f"initial_carry_{digest}"
