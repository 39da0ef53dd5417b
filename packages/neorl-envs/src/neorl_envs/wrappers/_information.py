"""A step's own information with something added."""

import collections
import functools
from typing import Any

from jaxtyping import Array


def extended(info: Any, **more: Array) -> Any:
    """``Step.info`` with further fields; the empty tuple has none of its own.

    Raises:
        ValueError: If a field is there already.
    """
    own: dict[str, Any] = dict(info._asdict()) if hasattr(info, "_asdict") else {}
    twice = sorted(set(own) & set(more))
    if twice:
        raise ValueError(f"the information has a field {twice[0]!r} already; wrap once")
    return _kind((*own, *more))(*own.values(), *more.values())


@functools.cache
def _kind(fields: tuple[str, ...]) -> Any:
    return collections.namedtuple("Information", fields)
