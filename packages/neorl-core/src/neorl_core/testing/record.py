"""Records a module's public API: ``python -m neorl_core.testing.record MODULE FILE``."""

import importlib
import sys
from pathlib import Path

from neorl_core.testing._public_api import public_api


def main(arguments: list[str]) -> None:
    """Writes the signatures of a module's exports to a file.

    Args:
        arguments: The module's import name and the file.
    """
    if len(arguments) != 2:
        raise SystemExit("usage: python -m neorl_core.testing.record MODULE FILE")
    name, file = arguments
    Path(file).write_text(public_api(importlib.import_module(name)))


if __name__ == "__main__":
    main(sys.argv[1:])
