"""Makes a configuration from a file, from values given in Python, or from both."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neorl_agents import ALGORITHMS
from neorl_train.configuration._sections import Config, config_type
from neorl_train.configuration._toml import load_toml, updated
from neorl_train.configuration._validation import validate


def configure(
    file: str | os.PathLike[str] | None = None, /, **sections: Mapping[str, Any]
) -> Config:
    """The configuration of a run: the defaults, overridden by a file, then by given sections.

    Args:
        file: A TOML file, as for the command.
        **sections: Values by section, with the names of the file.

    Returns:
        The configuration, after every check that needs no data.

    Raises:
        InputError: If the file cannot be read, a section or key is unknown (the closest name is
            suggested), or a value has another type or is out of range.

    Example:
        >>> from neorl_train import configure
        >>> config = configure(
        ...     data={"source": "plant.h5"},
        ...     training={"algorithms": ["iql"], "seeds": [0, 1]},
        ...     algorithms={"iql": {"expectile": 0.8}},
        ... )
        >>> config.training.seeds, config.algorithms.iql.expectile
        ((0, 1), 0.8)
    """
    config = config_type(ALGORITHMS)()
    if file is not None:
        config = load_toml(Path(file), config)
    config = updated(config, sections)
    validate(config)
    return config
