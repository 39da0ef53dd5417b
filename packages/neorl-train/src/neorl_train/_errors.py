"""Exceptions that end a run early."""

from neorl_core.infrastructure.command_line import StoppedError


class InterruptedRunError(StoppedError):
    """A signal stopped a run, which can be resumed; ``resume`` is the command for this."""
