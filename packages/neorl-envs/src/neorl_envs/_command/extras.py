"""Requirements of the optional extras of this package, for messages."""

import importlib.metadata


def install_line(extra: str) -> str:
    """The command that installs the requirements of an extra of this package.

    It names the libraries instead of the extra, because this package is not on a package index.
    """
    declared = importlib.metadata.requires("neorl-envs") or []
    parts = [line.partition(";") for line in declared]
    requirements = [f'"{name.strip()}"' for name, _, marker in parts if extra in marker]
    return " ".join(["python -m pip install", *requirements])
