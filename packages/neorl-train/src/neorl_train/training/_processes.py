"""Processes that train together: they agree on what to do, and only process 0 writes."""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from neorl_core import InputError
from neorl_core.infrastructure.command_line import one_line
from neorl_train.runs._checkpoints import Checkpoints, Restored

OK, FAILED = 0, 1
LOST = re.compile(r"gloo|nccl|connection|coordination|heartbeat|peer|deadline|unavailable", re.I)


class LostProcessError(InputError):
    """Another process of the training ended unexpectedly.

    Args:
        message: Symptom of the failure.
        advice: Advice to the user.
    """

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(
            f"another of the {jax.process_count()} processes was lost ({message}); {advice}"
        )
        self.message = message


def several() -> bool:
    """Whether this process trains together with others."""
    return jax.process_count() > 1


def leads() -> bool:
    """Whether this process writes; a single process always does."""
    return jax.process_index() == 0


@contextlib.contextmanager
def all_or_none(action: str) -> Iterator[None]:
    """Runs a block in all processes together; if one of them fails, all of them stop.

    Args:
        action: Action of the block, as an infinitive for the message.

    Raises:
        InputError: In the processes that did not fail themselves; the message names the one that
            did.
    """
    if not several():
        yield
        return
    try:
        yield
    except LostProcessError:
        raise
    except BaseException:
        _gather(np.array([FAILED]))
        raise
    failed = np.flatnonzero(_gather(np.array([OK])).ravel() == FAILED)
    if failed.size:
        raise InputError(
            f"process {failed[0]} could not {action}; its own message states the reason"
        )


@contextlib.contextmanager
def lost_in_one_line(advice: str) -> Iterator[None]:
    """Turns an error of the connection to another process into one line.

    If such blocks are nested, the message takes its advice from the outer one.

    Raises:
        LostProcessError: With the first characters of the original error.
    """
    try:
        yield
    except LostProcessError as error:
        raise LostProcessError(error.message, advice) from None
    except (jax.errors.JaxRuntimeError, RuntimeError) as error:
        if not several() or isinstance(error, InputError) or not LOST.search(str(error)):
            raise
        raise LostProcessError(one_line(error)[:120], advice) from None


def require_equal(text: str, quantity: str) -> None:
    """Refuses processes that have different values.

    Raises:
        InputError: In all processes; the message names the first that differs from process 0.
    """
    if not several():
        return
    own_value = np.frombuffer(text.encode().ljust(128)[:128], np.uint8)
    all_values = _gather(own_value)
    different = np.flatnonzero((all_values != all_values[0]).any(axis=1))
    if different.size:
        raise InputError(
            f"process {different[0]} has another {quantity} than process 0; give all processes the "
            "same"
        )


def text_of_leader(text: str) -> str:
    """The text of process 0, in all processes."""
    return _bytes_of_leader(text.encode()).decode()


def stop_of_all(stop: Callable[[], bool]) -> Callable[[], bool]:
    """Whether any process was asked to stop, so that all of them stop after the same chunk."""
    if not several():
        return stop
    return lambda: bool(_gather(np.array([int(stop())])).any())


def end_together() -> None:
    """Ends the joint work: from here on each process is alone, and none waits for another."""
    if several():
        jax.distributed.shutdown()


class LeaderCheckpoints:
    """Checkpoints that process 0 reads and writes; the other processes receive what it read.

    Args:
        local: Checkpoints of process 0; ``None`` in the others.
    """

    def __init__(self, local: Checkpoints | None) -> None:
        self._own = local

    def part(self, name: str) -> "LeaderCheckpoints":
        """As :meth:`Checkpoints.part`."""
        return LeaderCheckpoints(None if self._own is None else self._own.part(name))

    def save(
        self, step: int, tree: Any, *, force: bool = False, value: float | None = None
    ) -> bool:
        """As :meth:`Checkpoints.save`; a disk error stops all processes."""
        return self._own is not None and self._own.save(step, tree, force=force, value=value)

    def wait(self) -> None:
        """As :meth:`Checkpoints.wait`."""
        if self._own is not None:
            self._own.wait()

    def close(self) -> None:
        """As :meth:`Checkpoints.close`."""
        if self._own is not None:
            self._own.close()

    def steps(self) -> list[int]:
        """As :meth:`Checkpoints.steps`; empty if nothing is written."""
        return [] if self._own is None else self._own.steps()

    def restore(self, template: Any) -> Restored | None:
        """As :meth:`Checkpoints.restore`; works in all processes."""
        with all_or_none("restore the checkpoint"):
            restored = None if self._own is None else self._own.restore(template)
        step = int(_bytes_of_leader(str(-1 if restored is None else restored.step).encode()))
        if step < 0:
            return None
        leaves, structure = jax.tree.flatten(template if restored is None else restored.tree)
        arrays = [np.asarray(leaf) for leaf in leaves]
        received = _bytes_of_leader(b"".join(array.tobytes() for array in arrays))
        values, offset = [], 0
        for array in arrays:
            part = received[offset : offset + array.nbytes]
            values.append(np.frombuffer(part, array.dtype).reshape(array.shape).copy())
            offset += array.nbytes
        return Restored(step, structure.unflatten(values))


def checkpoints_for_all(checkpoints: Checkpoints) -> Checkpoints | LeaderCheckpoints:
    """Checkpoints whose values are sent to the other processes, if there are any.

    Raises:
        InputError: If several processes are to keep the best checkpoint, since one alone validates.
    """
    if several() and checkpoints.keeps_best:
        raise InputError("checkpoints.best works in one process; leave it out, or start one alone")
    return LeaderCheckpoints(checkpoints) if several() else checkpoints


def _gather(values: np.ndarray) -> np.ndarray:
    with lost_in_one_line("start all of them again"):
        return np.asarray(multihost_utils.process_allgather(values))


def _bytes_of_leader(own_value: bytes) -> bytes:
    """The bytes of process 0, of any length."""
    with lost_in_one_line("start all of them again"):
        size = int(multihost_utils.broadcast_one_to_all(np.int32(len(own_value))))
        sent = np.zeros(size, np.uint8)
        if leads():
            sent[:] = np.frombuffer(own_value, np.uint8)
        return np.asarray(multihost_utils.broadcast_one_to_all(sent)).tobytes()
