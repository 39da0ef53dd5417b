"""Early ends of a command, and errors as one line."""

import signal

_NAMES = {int(signal.SIGINT): "Ctrl-C", int(signal.SIGTERM): "SIGTERM"}


class StoppedError(Exception):
    """A signal asked the command to stop.

    Attributes:
        signal_number: Number of the signal; the command ends with 128 plus this number.
        resume: Command that continues the work; empty if nothing was started.
    """

    def __init__(self, signal_number: int, resume: str = "") -> None:
        super().__init__(f"stopped by {_NAMES.get(signal_number, f'signal {signal_number}')}")
        self.signal_number = signal_number
        self.resume = resume


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error reports that an array did not fit into host or device memory."""
    if isinstance(error, MemoryError):
        return True
    from jax.errors import JaxRuntimeError

    return isinstance(error, JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


def one_line(error: BaseException) -> str:
    """The message of an error on one line; the name of its type if it has no message."""
    text = " ".join(str(error).split())
    return text or type(error).__name__
