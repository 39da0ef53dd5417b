"""Errors of the package, each with the exit code of the command."""

from typing import ClassVar


class DeployError(ValueError):
    """Bad input; the one-line message states what was given, what was expected and what to do."""

    exit_code: ClassVar[int] = 2


class BundleError(DeployError):
    """The bundle is damaged, incomplete, or not what it claims to be."""


class NotDeployable(DeployError):  # noqa: N818 - an outcome, not a fault
    """The verdict forbids the requested operation."""

    exit_code: ClassVar[int] = 3


def missing_extra(feature: str, extra: str, error: ImportError, *, other: str = "") -> DeployError:
    """The error to raise if an optional dependency is not installed.

    Nothing is on a package index yet, so it names a line for a clone; ``other`` is what a user
    can do instead.
    """
    return DeployError(
        f"{feature} needs {error.name}, which is not installed: in the clone, "
        f'python -m pip install "./packages/neorl-deploy[{extra}]"{other}'
    )
