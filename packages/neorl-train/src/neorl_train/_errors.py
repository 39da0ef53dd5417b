"""Early ends of a run."""

from neorl_core.infrastructure.command_line import StoppedError


class InterruptedRunError(StoppedError):
    """A signal stopped a run, which can be resumed; ``resume`` is the command that does so."""
