"""The head that every JSON document and file of neorl begins with."""

from collections.abc import Mapping
from typing import Any

from neorl_core._vocabulary.errors import InputError


def head(kind: str, version: int) -> dict[str, Any]:
    """The first two fields of a document.

    Args:
        kind: What the document is, in lower case: ``"run"`` gives the format ``"neorl-run"``.
        version: Version of its layout; a reader accepts one version.

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
    """The fields of a document behind its head, once the head was found right.

    Args:
        document: The value that was read.
        kind: Kind of document, as for :func:`head`.
        version: The version that the caller reads.
        source: File or place it was read from, for the message.
        error: Class of the error.

    Returns:
        The fields without ``format`` and ``version``.

    Raises:
        InputError: If it is no object, of another format or of another version.

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
