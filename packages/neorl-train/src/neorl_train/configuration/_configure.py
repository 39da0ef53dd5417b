"""A configuration from a file, from values given in Python, or from both."""

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
    """The configuration of a run: the defaults, then a file, then the given sections.

    Args:
        file: A TOML file, as the command takes one.
        **sections: Values by section, named as in the file.

    Returns:
        The configuration, with every value checked that can be checked without the data.

    Raises:
        InputError: If the file cannot be read, a section or key is unknown (with the nearest
            name), or a value is of another type or out of its range.

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
