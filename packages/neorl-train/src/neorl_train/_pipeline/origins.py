"""Which third-party distributions supplied the plant, reader or learner of a run."""

from typing import Any

from neorl_agents import ALGORITHMS
from neorl_core.infrastructure import Registry
from neorl_envs.ingest import READERS, reader_name
from neorl_envs.plants import PLANTS
from neorl_safety.constraints import KINDS, Constraints
from neorl_train.configuration._sections import Config


def origins(config: Config, constraints: Constraints) -> dict[str, dict[str, str]]:
    """Distribution and version of every third-party learner, plant, reader and constraint.

    Args:
        config: Configuration whose source has been read.
        constraints: Constraints of the run.

    Returns:
        By kind (``"algorithm"``, ``"environment"``, ``"reader"``, ``"constraint"``) and by name;
        ``"registered"`` if a script supplied it. Empty if everything is our own.
    """
    source = config.data.source
    reader = "" if source in PLANTS else reader_name(source)
    used = {
        "algorithm": (ALGORITHMS, config.training.algorithms),
        "environment": (PLANTS, [source] if source in PLANTS else []),
        "reader": (READERS, [reader] if reader else []),
        "constraint": (KINDS, list(constraints.further)),
    }
    by_kind = {
        kind: {name: origin for name in names if (origin := origin_of(table, name))}
        for kind, (table, names) in used.items()
    }
    return {kind: names for kind, names in by_kind.items() if names}


def origin_of(table: Registry[Any], name: str) -> str:
    """Distribution and version behind a name; a script may use names that no table contains."""
    return table.origin(name) if name in table else "given by a script"
