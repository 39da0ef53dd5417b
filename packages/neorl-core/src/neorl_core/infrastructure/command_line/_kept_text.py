"""Text that was printed before, kept until the code behind it changes.

What a subcommand says of itself depends on its options, and those of training on every learner, as
the list of learners does: importing them takes seconds of processor time. The text is kept in the
user's cache beside a mark of the state of the code, and printed again while that is the same.
"""

import contextlib
import hashlib
import importlib.util
import io
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from neorl_core.infrastructure._files import write_text
from neorl_core.infrastructure.command_line._process import cache_directory
from neorl_core.infrastructure.command_line._sections import HELP

OURS = (
    "neorl_core",
    "neorl_envs",
    "neorl_safety",
    "neorl_agents",
    "neorl_train",
    "neorl_deploy",
)


def is_help(words: Sequence[str]) -> bool:
    """Whether a subcommand is only asked what it is."""
    return any(word in HELP for word in words)


def kept_text(program: str, words: Sequence[str], render: Callable[[], object]) -> str:
    """A text that is kept, or else rendered and kept; it depends on installed code alone.

    Nothing is kept where another distribution brings learners, plants or readers of its own: its
    code is not watched.

    Args:
        program: Name of the command.
        words: Words after it.
        render: Prints the text; may end with ``SystemExit(0)``.

    Returns:
        The text.

    Raises:
        SystemExit: As ``render`` ends with another code.
    """
    request = (program, *words, str(shutil.get_terminal_size().columns), str(sys.stdout.isatty()))
    name = hashlib.sha256("\0".join(request).encode()).hexdigest()[:24]
    path = cache_directory().parent / "help" / f"{name}.txt"
    state = _state()
    with contextlib.suppress(OSError, UnicodeDecodeError):
        mark, _, text = path.read_text(encoding="utf-8").partition("\n")
        if mark == state:
            return text
    text = rendered_help(render)
    if not _has_guests():
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, f"{state}\n{text}")
    return text


def rendered_help(render: Callable[[], object]) -> str:
    """Returns the text that ``render`` prints.

    Raises:
        SystemExit: As it ends with another code than 0.
    """
    page = _Page()
    try:
        with contextlib.redirect_stdout(page):
            render()
    except SystemExit as stop:
        if stop.code not in (0, None):
            raise
    return page.getvalue()


class _Page(io.StringIO):
    """Text that is a terminal where the standard output is, so that it has its colours."""

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def _state() -> str:
    """A digest of every source file of the packages and of every folder of the search path."""
    digest = hashlib.sha256(sys.version.encode())
    for entry in sys.path:
        with contextlib.suppress(OSError):
            digest.update(f"{entry} {os.stat(entry or '.').st_mtime_ns}".encode())
    for package in OURS:
        module_spec = importlib.util.find_spec(package)
        for folder in (module_spec and module_spec.submodule_search_locations) or ():
            _take_folder(Path(folder), digest)
    return digest.hexdigest()


def _take_folder(folder: Path, digest: "hashlib._Hash") -> None:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            if entry.is_dir() and entry.name != "__pycache__":
                _take_folder(Path(entry.path), digest)
            elif entry.name.endswith(".py"):
                stat = entry.stat()
                digest.update(f"{entry.path} {stat.st_mtime_ns} {stat.st_size}".encode())


def _has_guests() -> bool:
    """Whether a distribution that is none of ours adds to a table."""
    own = {package.replace("_", "-") for package in OURS}
    return any(
        point.group.startswith("neorl.") and distribution.name not in own
        for distribution in metadata.distributions()
        for point in distribution.entry_points
    )
