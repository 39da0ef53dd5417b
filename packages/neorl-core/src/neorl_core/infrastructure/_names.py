"""The nearest name to a mistyped one."""

import difflib
import re
from collections.abc import Iterable

from neorl_core._vocabulary.errors import InputError

_SIMILARITY = 0.4  # of difflib's ratio; lower ones suggest names that nobody meant
_VERSION = re.compile(r"-v[0-9]+$")  # what all names have in common says nothing


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like a given one; letter case and versions do not count.

    Args:
        name: Name as given.
        known: Names that exist.

    Returns:
        One of ``known``, or ``None`` where none is similar.

    Example:
        >>> from neorl_core.infrastructure import nearest_name
        >>> nearest_name("TD3-CB", ["bc", "td3-bc", "iql"])
        'td3-bc'
    """
    by_stem = {_stem(candidate): candidate for candidate in known}
    near = difflib.get_close_matches(_stem(name), by_stem, n=1, cutoff=_SIMILARITY)
    return by_stem[near[0]] if near else None


def _stem(name: str) -> str:
    return _VERSION.sub("", name.lower())


def unknown_name(
    kind: str, name: str, known: Iterable[str], error: type[InputError] = InputError
) -> InputError:
    """The error for a name that is not known, with the nearest one that is.

    Args:
        kind: What the name stands for, for example ``"environment"``.
        name: Name as given.
        known: Names that exist.
        error: Class of the error.

    Returns:
        The error, to be raised.

    Example:
        >>> from neorl_core.infrastructure import unknown_name
        >>> print(unknown_name("algorithm", "ipl", ["bc", "iql"]))
        unknown algorithm 'ipl'; did you mean 'iql'? known: bc, iql
    """
    names = list(known)
    near = nearest_name(name, names)
    hint = f"did you mean {near!r}? " if near else ""
    return error(f"unknown {kind} {name!r}; {hint}known: {', '.join(names) or 'none'}")
