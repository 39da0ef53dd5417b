"""Errors that end a command with one line, and the nearest name to a mistyped one."""

import difflib
import signal
from collections.abc import Iterable

_NAMES = {int(signal.SIGINT): "Ctrl-C", int(signal.SIGTERM): "SIGTERM"}


class BadInputError(ValueError):
    """Something the user gave cannot be used; the message is one line that says what to do."""


class InterruptedRunError(Exception):
    """A signal asked the command to stop.

    Attributes:
        signal_number: For example ``signal.SIGINT``; the command ends with 128 plus this number.
        resume: The command that continues; empty where nothing was begun.
    """

    def __init__(self, signal_number: int, resume: str = "") -> None:
        super().__init__(f"stopped by {_NAMES.get(signal_number, f'signal {signal_number}')}")
        self.signal_number = signal_number
        self.resume = resume


def unknown_name(kind: str, name: str, known: Iterable[str]) -> BadInputError:
    """The error for a name that is not known, with the nearest one that is.

    Args:
        kind: What the name should be of, for example ``"environment"``.
        name: As given.
        known: All that exist.

    Returns:
        The error, to be raised.
    """
    names = list(known)
    near = difflib.get_close_matches(name.lower(), [n.lower() for n in names], n=1, cutoff=0.4)
    nearest = [n for n in names if n.lower() in near][:1]
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return BadInputError(f"unknown {kind} {name!r}; {hint}known: {', '.join(names) or 'none'}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that an array did not fit into the memory of the host or a device."""
    if isinstance(error, MemoryError):
        return True
    from jax.errors import JaxRuntimeError

    return isinstance(error, JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


def one_line(error: BaseException) -> str:
    """The message of an error on one line; its type where it has no message."""
    text = " ".join(str(error).split())
    return text or type(error).__name__
