"""Records a package's public API: ``python -m neorl_core.testing.record PACKAGE FOLDER``."""

import importlib
import sys
from pathlib import Path

from neorl_core.testing._public_api import namespaces, public_api


def main(arguments: list[str]) -> None:
    """Writes the signatures of a package's exports, one file per namespace; removes stale files.

    Args:
        arguments: The package's import name and the folder.
    """
    if len(arguments) != 2:
        raise SystemExit("usage: python -m neorl_core.testing.record PACKAGE FOLDER")
    package, folder = arguments
    for stale in Path(folder).glob("*.txt"):
        stale.unlink()
    for module in namespaces(importlib.import_module(package)):
        (Path(folder) / f"{module.__name__}.txt").write_text(public_api(module))


if __name__ == "__main__":
    main(sys.argv[1:])
