"""Options of learners that a run does not train, or that cannot be imported."""

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

from neorl_agents import ALGORITHMS
from neorl_core import InputError
from neorl_train.configuration._sections import Config, hyperparameters

OPTION = re.compile(r"--algorithms\.([^.=]+)\.[^=]+")
"""An option of a learner as it is typed."""


def require_importable(config: Config, words: Iterable[str]) -> None:
    """Says why a learner that options are typed for has no section: its distribution is broken.

    Args:
        config: Defaults, with a section for every learner that could be imported.
        words: The words that were typed.

    Raises:
        InputError: With what keeps the learner from being imported or used.
    """
    sections = set(_names(config.algorithms))
    for word in words:
        option = OPTION.match(word)
        name = option[1].replace("-", "_") if option else ""
        if name in ALGORITHMS and name not in sections:
            ALGORITHMS.find(name)


def refuse_untrained(config: Config, words: Iterable[str]) -> None:
    """Refuses an option that was typed for a learner that is not trained.

    A file may serve several runs, so its sections are no fault (:func:`untrained_notes`); what is
    typed for this one run is.

    Args:
        config: What the words made; an unknown learner among the trained ones is left to
            :func:`validate`.
        words: The words that were typed.

    Raises:
        InputError: Naming the option, what is trained, and both ways out.
    """
    trained = config.training.algorithms
    if not set(trained) <= set(_names(config.algorithms)):
        return
    for word in words:
        option = OPTION.match(word)
        name = option[1].replace("-", "_") if option else ""
        if option and name not in trained:
            raise InputError(
                f"{option[0]} is an option of {name}, which this run does not train: it trains "
                f"{', '.join(trained)}; leave it out, or train {name} too with "
                f"`--training.algorithms {' '.join((*trained, name))}`"
            )


def untrained_notes(config: Config, usual: Any) -> list[str]:
    """The learners that are configured but not trained, each in words.

    Args:
        config: Validated.
        usual: Sections of all learners with nothing configured: the defaults, or for a fine-tuning
            those of its run.

    Returns:
        One sentence for every learner that is not trained and has other values than ``usual``.
    """
    notes = []
    for name in _names(config.algorithms):
        ours, theirs = hyperparameters(config, name), getattr(usual, name)
        changed = changed_fields(ours, theirs)
        if changed and name not in config.training.algorithms:
            notes.append(
                f"algorithms.{name} has {', '.join(changed)}, but this run does not train {name}, "
                f"so the settings have no effect; add {name} to training.algorithms to train it too"
            )
    return notes


def changed_fields(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """Dotted names of the fields that differ, those of nested settings one by one."""
    changed = []
    for field in _names(ours):
        mine, its = getattr(ours, field), getattr(theirs, field)
        if dataclasses.is_dataclass(mine):
            changed += changed_fields(mine, its, f"{where}{field}.")
        elif mine != its:
            changed.append(f"{where}{field}")
    return changed


def _names(section: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(section)]
