"""Errors of the package, each with the exit code of the command."""

import contextlib
from collections.abc import Iterator
from typing import ClassVar


class DeployError(ValueError):
    """Bad input; the one-line message states what was given, what was expected and what to do."""

    exit_code: ClassVar[int] = 2


class BundleError(DeployError):
    """The bundle is damaged, incomplete, or not what it claims to be."""


class NotDeployable(DeployError):  # noqa: N818 - an outcome, not a fault
    """The verdict forbids the requested operation."""

    exit_code: ClassVar[int] = 3


@contextlib.contextmanager
def needs(feature: str, extra: str) -> Iterator[None]:
    """Imports of what an extra installs; without it, an error names the line that installs it.

    Raises:
        DeployError: If an import fails.
    """
    try:
        yield
    except ImportError as error:
        raise missing_extra(feature, extra, error) from error


def missing_extra(feature: str, extra: str, error: ImportError, *, other: str = "") -> DeployError:
    """The error to raise if an optional dependency is not installed.

    Nothing is on a package index yet, so it names a line for a clone; ``other`` is what a user
    can do instead.
    """
    return DeployError(
        f"{feature} needs {error.name}, which is not installed: in the clone, "
        f'python -m pip install "./packages/neorl-deploy[{extra}]"{other}'
    )
