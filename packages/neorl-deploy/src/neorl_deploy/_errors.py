"""Errors of the package, each with the exit code of the command."""

from typing import ClassVar


class DeployError(ValueError):
    """Bad input: one line that says what came, what was expected, what to do."""

    exit_code: ClassVar[int] = 2


class BundleError(DeployError):
    """A bundle is not intact, not complete, or not what it claims to be."""


class NotDeployable(DeployError):  # noqa: N818 - an outcome, not a fault
    """The verdict forbids what was asked."""

    exit_code: ClassVar[int] = 3


def missing_extra(feature: str, extra: str, error: ImportError) -> DeployError:
    """The error to raise where an optional dependency is not installed."""
    return DeployError(
        f'{feature} needs {error.name}, which is not installed: pip install "neorl-deploy[{extra}]"'
    )
