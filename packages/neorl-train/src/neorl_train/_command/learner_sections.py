"""The options of every learner for help texts, read without importing the package's learners."""

from collections.abc import Callable
from functools import partial
from importlib import metadata

from neorl_core import InputError
from neorl_core.infrastructure.command_line import (
    Section,
    declared_table,
    declared_value,
    one_line,
    section_of,
)

TABLE = "neorl_agents.algorithms._table", "ALGORITHMS"
PRESETS = "neorl_train.configuration._sections", "DEMO_HYPERPARAMETERS"


def learner_sections() -> dict[str, Callable[[], Section]]:
    """Makes the section of every learner, by its name.

    Those of ``neorl_agents`` are read from source. Those of other distributions may be made in any
    way, so their modules are imported, but only when their own section is made.
    """
    own = declared_table(*TABLE)
    foreign = {point.name for point in metadata.entry_points(group="neorl.algorithms")}
    return {name: partial(_own, name, read) for name, read in own.items()} | {
        name: partial(_foreign, name) for name in sorted(foreign.difference(own))
    }


def _own(name: str, read: Callable[[], Section]) -> Section:
    return read().replaced(declared_value(*PRESETS).get(name, {}))


def _foreign(name: str) -> Section:
    """The section of a learner of another distribution; only the reason if that is broken."""
    from neorl_agents import ALGORITHMS
    from neorl_train.configuration._sections import config_type

    try:
        ALGORITHMS.find(name)
    except InputError as error:
        return Section(one_line(error), "", {})
    return section_of(getattr(config_type(ALGORITHMS)().algorithms, name))
