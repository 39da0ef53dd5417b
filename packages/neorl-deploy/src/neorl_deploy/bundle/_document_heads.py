"""The head of a document, ``{"format": "neorl-run", "version": 1}``, read without neorl-core."""

from typing import Any

from neorl_deploy._errors import DeployError


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
