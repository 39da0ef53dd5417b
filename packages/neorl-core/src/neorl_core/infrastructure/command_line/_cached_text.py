"""Help texts that are cached until the code that produces them changes.

The help of a subcommand depends on its options, and the help of training and the list of learners
depend on every learner; importing them takes seconds of processor time. The text is kept in the
user's cache with a digest of the state of the code, and printed again while the digest is
unchanged.
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

OUR_PACKAGES = (
    "neorl_core",
    "neorl_envs",
    "neorl_safety",
    "neorl_agents",
    "neorl_train",
    "neorl_deploy",
)


def is_help(words: Sequence[str]) -> bool:
    """Whether the words ask for the help of a subcommand."""
    return any(word in HELP for word in words)


def cached_text(program: str, words: Sequence[str], render: Callable[[], object]) -> str:
    """A cached text, rendered and cached if necessary; it depends only on installed code.

    Nothing is cached if another distribution provides learners, plants or readers, since changes to
    its code would go unnoticed.

    Args:
        program: Name of the command.
        words: Words after the name of the command.
        render: Prints the text; may end with ``SystemExit(0)``.

    Returns:
        The text.

    Raises:
        SystemExit: If ``render`` ends with a code other than 0.
    """
    request = (program, *words, str(shutil.get_terminal_size().columns), str(sys.stdout.isatty()))
    name = hashlib.sha256("\0".join(request).encode()).hexdigest()[:24]
    path = cache_directory().parent / "help" / f"{name}.txt"
    state = _state()
    with contextlib.suppress(OSError, UnicodeDecodeError):
        stored_state, _, text = path.read_text(encoding="utf-8").partition("\n")
        if stored_state == state:
            return text
    text = rendered_help(render)
    if not _has_third_party():
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, f"{state}\n{text}")
    return text


def rendered_help(render: Callable[[], object]) -> str:
    """The text that ``render`` prints.

    Raises:
        SystemExit: If ``render`` ends with a code other than 0.
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
    """A buffer that claims to be a terminal if the standard output is one, to keep colours."""

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def _state() -> str:
    """A digest of every source file of the packages and of every folder on ``sys.path``."""
    digest = hashlib.sha256(sys.version.encode())
    for entry in sys.path:
        with contextlib.suppress(OSError):
            digest.update(f"{entry} {os.stat(entry or '.').st_mtime_ns}".encode())
    for package in OUR_PACKAGES:
        module_spec = importlib.util.find_spec(package)
        for folder in (module_spec and module_spec.submodule_search_locations) or ():
            _add_folder(Path(folder), digest)
    return digest.hexdigest()


def _add_folder(folder: Path, digest: "hashlib._Hash") -> None:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            if entry.is_dir() and entry.name != "__pycache__":
                _add_folder(Path(entry.path), digest)
            elif entry.name.endswith(".py"):
                stat = entry.stat()
                digest.update(f"{entry.path} {stat.st_mtime_ns} {stat.st_size}".encode())


def _has_third_party() -> bool:
    """Whether a distribution other than ours provides entry points for our tables."""
    own = {package.replace("_", "-") for package in OUR_PACKAGES}
    return any(
        point.group.startswith("neorl.") and distribution.name not in own
        for distribution in metadata.distributions()
        for point in distribution.entry_points
    )
