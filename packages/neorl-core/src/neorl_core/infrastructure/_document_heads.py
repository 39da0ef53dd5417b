"""The first fields of every JSON document and file of neorl."""

from collections.abc import Mapping
from typing import Any

from neorl_core._vocabulary.errors import InputError


def head(kind: str, version: int) -> dict[str, Any]:
    """The first two fields of a document.

    Args:
        kind: Kind of document, in lower case: ``"run"`` gives the format ``"neorl-run"``.
        version: Version of the layout; a reader accepts one version.

    Returns:
        ``{"format": "neorl-<kind>", "version": version}``.

    Example:
        >>> from neorl_core.infrastructure import head
        >>> head("verdict", 1)
        {'format': 'neorl-verdict', 'version': 1}
    """
    return {"format": f"neorl-{kind}", "version": version}


def check_head(
    document: Any, kind: str, version: int, source: str, error: type[InputError] = InputError
) -> dict[str, Any]:
    """Checks the head of a document and returns its other fields.

    Args:
        document: The value that was read.
        kind: Expected kind of document, as for :func:`head`.
        version: The version that the caller supports.
        source: File or place it was read from, for the message.
        error: Class of the error.

    Returns:
        The fields without ``format`` and ``version``.

    Raises:
        InputError: If it is not an object, or has another format or version.

    Example:
        >>> from neorl_core.infrastructure import check_head
        >>> check_head({"format": "neorl-run", "version": 1, "id": 3}, "run", 1, "a.json")
        {'id': 3}
    """
    if not isinstance(document, Mapping):
        actual = type(document).__name__
        raise error(
            f"{source} holds a {actual}, expected a JSON object of format neorl-{kind}; "
            "is it the right file?"
        )
    expected = head(kind, version)
    if document.get("format") != expected["format"]:
        raise error(
            f"{source} has format {document.get('format')!r}, expected {expected['format']!r}; "
            "is it the right file?"
        )
    actual = document.get("version")
    if type(actual) is not int or actual != version:
        raise error(
            f"{source} has version {actual!r} of {expected['format']}, this version of neorl reads "
            f"{version}; read it with the version that wrote it, or write it again"
        )
    return {name: value for name, value in document.items() if name not in expected}
