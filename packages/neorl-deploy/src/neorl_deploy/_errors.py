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


def missing_extra(feature: str, extra: str, error: ImportError) -> DeployError:
    """The error to raise if an optional dependency is not installed."""
    return DeployError(
        f'{feature} needs {error.name}, which is not installed: pip install "neorl-deploy[{extra}]"'
    )
