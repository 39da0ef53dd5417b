"""The nearest name to a mistyped one."""

import difflib
import re
from collections.abc import Iterable

from neorl_core._vocabulary.errors import InputError

_SIMILARITY = 0.4  # difflib's ratio; smaller ones suggest unrelated names
_VERSION = re.compile(r"-v[0-9]+$")  # a suffix that all names share must not make them similar


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name most similar to a given one; letter case and version suffixes are ignored.

    Args:
        name: Name as given.
        known: Names that exist.

    Returns:
        One of ``known``, or ``None`` if none is similar.

    Example:
        >>> from neorl_core.infrastructure import nearest_name
        >>> nearest_name("TD3-CB", ["bc", "td3-bc", "iql"])
        'td3-bc'
    """
    by_stem = {_stem(candidate): candidate for candidate in known}
    match = difflib.get_close_matches(_stem(name), by_stem, n=1, cutoff=_SIMILARITY)
    return by_stem[match[0]] if match else None


def _stem(name: str) -> str:
    return _VERSION.sub("", name.lower())


def unknown_name(
    kind: str, name: str, known: Iterable[str], error: type[InputError] = InputError
) -> InputError:
    """The error for an unknown name, which suggests the nearest known one.

    Args:
        kind: Kind of object that the name refers to, for example ``"environment"``.
        name: Name as given.
        known: Names that exist.
        error: Class of the error.

    Returns:
        The error, for the caller to raise.

    Example:
        >>> from neorl_core.infrastructure import unknown_name
        >>> print(unknown_name("algorithm", "ipl", ["bc", "iql"]))
        unknown algorithm 'ipl'; did you mean 'iql'? known: bc, iql
    """
    names = list(known)
    match = nearest_name(name, names)
    hint = f"did you mean {match!r}? " if match else ""
    return error(f"unknown {kind} {name!r}; {hint}known: {', '.join(names) or 'none'}")
