"""Facts about the process of a command: the user's cache, and how the command was called."""

import os
import shlex
import shutil
import sys
from pathlib import Path


def cache_directory(name: str = "jax") -> Path:
    """The user's folder for files that can be recreated.

    Args:
        name: Name of the folder; ``"jax"`` holds compiled programs.
    """
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "neorl" / name


def command_prefix(program: str) -> str:
    """The words with which the user's shell calls a program, as far as they can be determined.

    Args:
        program: Name of the command, such as ``"neorl-envs"``.

    Returns:
        The words before its arguments: a call through hatch if hatch started this process, the bare
        name if the program is installed beside this Python, otherwise the module.
    """
    environment = os.environ.get("HATCH_ENV_ACTIVE")
    if environment:
        which = "" if environment == "default" else f"{environment}:"
        return f"python -m hatch run {which}{program}"
    path = shutil.which(program)
    if path and Path(path).parent == Path(sys.executable).parent:
        return program
    return f"{shlex.quote(sys.executable)} -m {program.replace('-', '_')}"
