"""Learners with small networks, from settings given flat."""

from dataclasses import fields, replace
from typing import Any


def made(kind: type, /, **settings: Any) -> Any:
    """A learner; settings of its ``networks`` and ``steps`` stand beside its own.

    What is not given keeps the learner's default, also where that is not the one of ``Networks`` or
    ``Steps``.
    """
    default: Any = kind()
    for part in ("networks", "steps"):
        nested = getattr(default, part)
        names = {field.name for field in fields(nested)} & settings.keys()
        settings[part] = replace(nested, **{name: settings.pop(name) for name in names})
    return kind(**settings)
