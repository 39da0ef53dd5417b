"""Settings of learners by one name each, as the stored results have them.

A learner holds the form of its networks and of its gradient steps in two nested settings. Results
that were stored before they were nested name them beside the others, and so do those made since:
no two of them have one name.
"""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from neorl_agents import ALGORITHMS

NESTED = ("networks", "steps")


def flat_settings(learner: Any) -> dict[str, Any]:
    """Every setting of a learner by its own name, as JSON holds it."""
    settings = dataclasses.asdict(learner)
    for part in NESTED:
        settings |= settings.pop(part)
    return json.loads(json.dumps(settings))


def learner_with(kind: type, **settings: Any) -> Any:
    """A learner with some of its settings replaced; each is given by its own name."""
    learner: Any = kind()
    for part in NESTED:
        nested = getattr(learner, part)
        own = {field.name for field in dataclasses.fields(nested)} & settings.keys()
        nested = dataclasses.replace(nested, **{field: settings.pop(field) for field in own})
        learner = dataclasses.replace(learner, **{part: nested})
    return dataclasses.replace(learner, **settings)


def changed_settings(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Of stored settings those that are not the learner's defaults, by their full names."""
    learner: Any = ALGORITHMS[name]()
    full = {}
    for part in NESTED:
        full |= {
            field.name: f"{part}.{field.name}"
            for field in dataclasses.fields(getattr(learner, part))
        }
    return {
        full.get(name, name): value for name, value in _other(settings, flat_settings(learner), "")
    }


def _other(
    settings: dict[str, Any], defaults: dict[str, Any], where: str
) -> Iterator[tuple[str, Any]]:
    """The values that differ from the defaults, those of a nested setting by dotted names."""
    for name, value in settings.items():
        if isinstance(value, dict) and isinstance(defaults[name], dict):
            yield from _other(value, defaults[name], f"{where}{name}.")
        elif value != defaults[name]:
            yield f"{where}{name}", value


def same_settings(learner: Any, stored: dict[str, Any]) -> bool:
    """Whether a stored result is of this learner.

    A setting that the stored result does not know yet has its default.
    """
    mine, defaults = flat_settings(learner), flat_settings(type(learner)())
    return mine == {**defaults, **stored}
