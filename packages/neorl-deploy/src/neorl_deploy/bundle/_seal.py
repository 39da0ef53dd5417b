"""The seal, a digest in the names of a bundle's programs that ties them to its manifest."""

import hashlib
from collections.abc import Mapping
from typing import Any

from neorl_deploy.bundle._strict_json import dump_canonical

SEALED_FIELDS = ("spec", "carry", "flags", "limits", "constraints", "constraint_words", "guard")
"""Fields of the manifest that say what the programs do."""
CONTROLLERS = ("policy", "fallback")
"""Entries of the provenance that say which controllers act in them."""


def seal(document: Mapping[str, Any]) -> str:
    """The digest of all that a manifest says of its programs.

    The export writes it into the names of the programs, and whoever loads them compares it with the
    manifest: limits, channels, period, flags, monitors or words that were changed afterwards are
    found. It finds no forger who makes programs of his own; only a demanded key does.

    Args:
        document: A manifest, with or without the fields that name the programs.

    Returns:
        SHA-256 in hexadecimal digits.
    """
    described = {name: document[name] for name in SEALED_FIELDS}
    described |= {name: document["provenance"][name] for name in CONTROLLERS}
    return hashlib.sha256(dump_canonical(described)).hexdigest()


def program_names(document: Mapping[str, Any]) -> tuple[str, str]:
    """The names that the step and the program of the fresh carry have."""
    digest = seal(document)
    return f"step_{digest}", f"initial_carry_{digest}"
