"""Notes on learners: options of those that a run does not train, and sizes of networks."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from neorl_agents import ALGORITHMS, BaseLearner
from neorl_core import InputError
from neorl_train.configuration._sections import Config, hyperparameters

OPTION = re.compile(r"--algorithms\.([^.=]+)\.[^=]+")
"""Pattern of a learner's option as typed."""


def require_importable(config: Config, arguments: Iterable[str]) -> None:
    """Raises if options are given for a learner that has no section: its distribution is broken."""
    sections = set(_names(config.algorithms))
    for word in arguments:
        option = OPTION.match(word)
        name = option[1].replace("-", "_") if option else ""
        if name in ALGORITHMS and name not in sections:
            ALGORITHMS.find(name)


def refuse_untrained(config: Config, arguments: Iterable[str]) -> None:
    """Refuses an option that was typed for a learner that is not trained.

    A file may serve several runs, so unused sections in it are allowed (:func:`untrained_notes`);
    an option typed for this one run is not.

    An unknown name among the trained learners is left to :func:`validate`.
    """
    trained = config.training.algorithms
    if not set(trained) <= set(_names(config.algorithms)):
        return
    for word in arguments:
        option = OPTION.match(word)
        name = option[1].replace("-", "_") if option else ""
        if option and name not in trained:
            raise InputError(
                f"{option[0]} is an option of {name}, which this run does not train: it trains "
                f"{', '.join(trained)}; leave it out, or train {name} too with "
                f"`--training.algorithms {' '.join((*trained, name))}`"
            )


def untrained_notes(config: Config, usual: Any) -> list[str]:
    """Notes about learners that are configured but not trained.

    ``usual`` has the sections of all learners if nothing is configured: the defaults, or for a
    fine-tuning those of its run.
    """
    notes = []
    for name in _names(config.algorithms):
        settings, defaults = hyperparameters(config, name), getattr(usual, name)
        changed = changed_fields(settings, defaults)
        if changed and name not in config.training.algorithms:
            notes.append(
                f"algorithms.{name} has {', '.join(changed)}, but this run does not train {name}, "
                f"so the settings have no effect; add {name} to training.algorithms to train it too"
            )
    return notes


def changed_fields(settings: Any, defaults: Any, where: str = "") -> list[str]:
    """Dotted names of the fields that differ; nested settings are compared field by field."""
    changed = []
    for field in _names(settings):
        value, default = getattr(settings, field), getattr(defaults, field)
        if dataclasses.is_dataclass(value):
            changed += changed_fields(value, default, f"{where}{field}.")
        elif value != default:
            changed.append(f"{where}{field}")
    return changed


def _names(section: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(section)]


SIZES = ("networks.hidden", "steps.batch_size")


def size_notes(learners: Mapping[str, Any]) -> list[str]:
    """Says so if learners that are compared have networks or batches of different sizes.

    The defaults of a run are small for some learners and those of the papers for the others, so a
    comparison with the defaults would also compare sizes.

    Learners that are not made with ``BaseLearner`` have no common sizes and are left out.
    """
    names: dict[str, list[str]] = {}
    for name, learner in learners.items():
        if isinstance(learner, BaseLearner):
            names.setdefault(_sizes(learner), []).append(name)
    if len(names) < 2:
        return []
    groups = "; ".join(f"{', '.join(group)}: {sizes}" for sizes, group in names.items())
    return [
        f"the learners differ in size ({groups}); to compare the methods alone, give all of them "
        f"the same {' and '.join(SIZES)}"
    ]


def _sizes(learner: BaseLearner) -> str:
    hidden = " ".join(map(str, learner.networks.hidden))
    return f"hidden layers of {hidden}, batches of {learner.steps.batch_size}"
