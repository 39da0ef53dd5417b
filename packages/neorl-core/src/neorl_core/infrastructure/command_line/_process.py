"""Facts about the process of a command: the user's cache, and how it was called."""

import os
import shlex
import shutil
import sys
from pathlib import Path


def cache_directory(what: str = "jax") -> Path:
    """Folder of the user for what can be made again.

    Args:
        what: Its name; ``"jax"`` are compiled programs.
    """
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "neorl" / what


def command_prefix(program: str) -> str:
    """The words with which the user's shell calls a program, as far as they can be known.

    Args:
        program: Name of the command, such as ``"neorl-envs"``.

    Returns:
        The words before its arguments: through hatch where this process was started by it, the
        bare name where it stands beside this Python, else the module.
    """
    environment = os.environ.get("HATCH_ENV_ACTIVE")
    if environment:
        which = "" if environment == "default" else f"{environment}:"
        return f"python -m hatch run {which}{program}"
    path = shutil.which(program)
    if path and Path(path).parent == Path(sys.executable).parent:
        return program
    return f"{shlex.quote(sys.executable)} -m {program.replace('-', '_')}"
