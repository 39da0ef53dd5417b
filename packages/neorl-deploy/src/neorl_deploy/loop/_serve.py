"""The process around the loop: keeps the period, takes orders, terminates if the loop hangs."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from neorl_deploy._errors import DeployError
from neorl_deploy.loop._control import ControlLoop
from neorl_deploy.loop._cycle import Cycle
from neorl_deploy.loop._locks import is_idle
from neorl_deploy.loop._modes import TARGETS, Mode
from neorl_deploy.loop._orders import RELEASE, STOP
from neorl_deploy.loop._plant import Clock
from neorl_deploy.loop._staged_rollout import StagedRollout
from neorl_deploy.runtime._decision import WITHOUT_STATE
from neorl_deploy.runtime._runtime import Runtime
from neorl_deploy.runtime._state import sync_folder

LOGGER = logging.getLogger("neorl_deploy.loop")
HUNG_EXIT_CODE = 70
"""Exit code of a process whose loop hung; its supervisor restarts it, in shadow mode."""
BEGIN, FULL = "rollout", "full"
RUNNING, ENDED = b"running", b"ended"
ORDERS = {mode.replace(" ", "-"): mode for mode in TARGETS}
"""Modes by their command-line names."""


def serve(
    loop: ControlLoop,
    clock: Clock,
    *,
    steps: int | None = None,
    ended: Callable[[], bool] = lambda: False,
    before: Callable[[], None] = lambda: None,
    after: Callable[[Cycle], None] = lambda _: None,
) -> None:
    """Calls the loop at whole multiples of its period since the start, on a monotonic clock.

    A period that begins while an earlier step is still running is missed: it is counted and
    skipped, and never run late or repeated.

    Args:
        loop: The loop.
        clock: Time source.
        steps: Number of steps to run; ``None`` to run until ended.
        ended: Called before every step; returns whether to end.
        before: Called before every step, for example to take orders.
        after: Called with every cycle.
    """
    period = loop.runtime.manifest.dt
    start, slot, missed, done = clock.now().monotonic, 0, 0, 0
    while (steps is None or done < steps) and not ended():
        clock.sleep_until(start + slot * period)
        if ended():  # a sleep may be cut short by it; a step must never be early
            break
        before()
        after(loop.step(missed))
        done += 1
        passed = (clock.now().monotonic - start) / period
        # The tolerance keeps a step that ends exactly with its period from missing the next one.
        following = max(slot + 1, math.ceil(passed - 1e-9))
        missed, slot = following - slot - 1, following


class Watchdog:
    """Detects a loop that no longer runs.

    Args:
        limit: Seconds without a step after which the loop counts as hung.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._last_step = math.inf

    def step_ended(self, monotonic: float) -> None:
        """Records that a step has ended."""
        self._last_step = monotonic

    def expired(self, monotonic: float) -> bool:
        """Whether the last step ended too long ago; always false before the first step."""
        return monotonic - self._last_step > self.limit

    def watch(self, clock: Clock, end: threading.Event) -> None:
        """Terminates the process if the loop hangs; runs in its own thread.

        The loop's own thread may hang in a call to the plant that nothing can interrupt. Once the
        process has ended, no heartbeat is written, so the plant takes over.
        """
        while not end.wait(self.limit / 4):
            if self.expired(clock.now().monotonic):
                LOGGER.critical("the loop has hung for %g s: the process ends", self.limit)
                logging.shutdown()
                os._exit(HUNG_EXIT_CODE)


class ProcessMark:
    """A file that says whether the last process in a folder ended in order, its state stored.

    A process that was killed, or whose disk could not be written, may have been given a stop that
    is not stored. Only an end in order proves that there is none, so this is what is marked.

    Args:
        folder: The folder of a loop, locked by this process.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "process"

    def begin(self, runtime: Runtime) -> str:
        """Marks that a process runs.

        Args:
            runtime: Its runtime, with the state of the folder.

        Returns:
            Why only a release lets the loop close; empty for no reason.

        Raises:
            DeployError: If the mark cannot be read or written.
        """
        try:
            first = not self._path.exists()
            ended = first or self._path.read_bytes() == ENDED
            self._write(RUNNING)
        except OSError as error:
            raise DeployError(f"cannot write {self._path}: {error.strerror}") from error
        if not ended:
            return "the last process did not end in order, so a stop of it may be lost"
        lost = not first and runtime.stopped.startswith(WITHOUT_STATE)
        return runtime.stopped if lost else ""

    def end(self, loop: ControlLoop) -> None:
        """Marks an end in order, unless the loop is held still, or the disk fails."""
        if loop.runtime.stored and not loop.held:
            with contextlib.suppress(OSError):
                self._write(ENDED)

    def _write(self, text: bytes) -> None:
        with self._path.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self._path.parent)


def _store_order(folder: Path, what: str, by: str) -> None:
    name = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
    draft = folder / "orders" / f".{name}"
    draft.write_text(json.dumps({"what": what, "by": by}))
    draft.replace(draft.with_name(f"{name}.json"))


def _stop_by_signal(folder: Path) -> bool:
    """Stops the loop of a folder whose disk takes no order; whether its process was reached."""
    try:
        if not hasattr(signal, "SIGUSR1") or is_idle(folder):
            return False
        os.kill(int((folder / "lock").read_text()), signal.SIGUSR1)
    except (OSError, ValueError):
        return False
    return True


def order(folder: Path, mode: str, by: str) -> None:
    """Orders the loop in a folder to change its mode or to stop; works from any process.

    Args:
        folder: The folder of the loop.
        mode: ``"manual"``, ``"shadow"``, ``"advisory"``, ``"closed-loop"``, ``"stop"`` or
            ``"release"``, which ends a stop. A loop with a roll-out also accepts ``"rollout"``
            (start it) and ``"full"`` (grant full authority).
        by: Name of the person and the reason.

    If no loop runs, a stop is kept for the next start. Other orders are refused, because an order
    given before the loop began must not close it. On a disk that takes no order, a stop reaches the
    process of the loop as a signal.

    Raises:
        DeployError: If no loop runs in the folder, ``mode`` is not one of these words, or ``by``
            is empty.
    """
    modes = (*ORDERS, STOP, RELEASE, BEGIN, FULL)
    if mode not in modes:
        raise DeployError(f"{mode!r} is not a mode; the modes are {', '.join(modes)}")
    if not by.strip():
        raise DeployError("say who asks for it and why with --by; both are recorded")
    try:
        idle = is_idle(folder)
        if mode == STOP or not idle:
            _store_order(folder, mode, by)
    except OSError as error:
        if not (folder / "lock").exists():
            raise DeployError(f"no loop has run in {folder}: {error.strerror}") from error
        if mode == STOP and _stop_by_signal(folder):
            LOGGER.warning(
                "the order cannot be stored (%s): the loop is stopped by a signal, and does not "
                "record who asked for it",
                error.strerror,
            )
            return
        raise DeployError(f"the order cannot be stored in {folder}: {error.strerror}") from error
    if idle:
        consequence = (
            "the stop applies from its next start on" if mode == STOP else "nothing was ordered"
        )
        raise DeployError(
            f"no loop runs in {folder}, so it writes nothing to the plant; {consequence}. Start it "
            "with `neorl-deploy serve`"
        )


def drop_old_orders(folder: Path) -> list[str]:
    """Removes orders that an earlier process did not take, except stops; one line for each.

    This process must hold the folder (:func:`loop_lock`).
    """
    lines = []
    for path in sorted((folder / "orders").glob("*.json")):
        try:
            document = json.loads(path.read_bytes())
            what, by = str(document["what"]), str(document["by"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # reported when the orders are taken
        if what != STOP:
            try:
                path.unlink()
            except OSError as error:
                raise DeployError(f"cannot delete the old order {path}: {error}") from error
            lines.append(
                f"{what} is not carried out, because it was ordered before this process began: {by}"
            )
    return lines


class OrderBox:
    """The orders in a folder: taken before a step, deleted once their effect is stored.

    An order whose effect cannot be stored stays in the folder, so that the next process knows of a
    stop that this one could not record.

    Args:
        folder: The folder of the loop.
        loop: The loop.
        rollout: Its roll-out, if it has one.
    """

    def __init__(
        self, folder: Path, loop: ControlLoop, rollout: StagedRollout | None = None
    ) -> None:
        self._folder, self._loop, self._rollout = folder / "orders", loop, rollout
        self._taken: set[Path] = set()

    def take(self) -> None:
        """Passes every new order to the loop and its roll-out, oldest first."""
        for path in sorted(self._folder.glob("*.json")):
            if path in self._taken:
                continue
            self._taken.add(path)
            try:
                document = json.loads(path.read_bytes())
                self._pass_on(str(document["what"]), str(document["by"]))
            except (OSError, ValueError, KeyError, TypeError) as error:
                LOGGER.error("the order %s is not carried out: %r", path.name, error)

    def stop(self, by: str) -> None:
        """Stops the loop from its next step on. Any thread of its process may call it.

        The stop is an order that outlives this process, where the disk takes one.
        """
        try:
            _store_order(self._folder.parent, STOP, by)
        except OSError:  # a full or read-only disk
            self._loop.stop(by)

    def settle(self) -> None:
        """Deletes the orders that a step has carried out, if their effect is stored."""
        if not self._loop.runtime.stored:
            return
        for path in tuple(self._taken):
            with contextlib.suppress(OSError):  # the name is kept: it is carried out once
                path.unlink(missing_ok=True)
                self._taken.discard(path)

    def _pass_on(self, what: str, by: str) -> None:
        if what == STOP:
            self._loop.stop(by)
        elif what == RELEASE:
            self._loop.release(by)
        elif what not in (BEGIN, FULL):
            self._loop.ask(ORDERS[what], by)
        elif self._rollout is None:
            raise ValueError("this loop has no roll-out; start it with --rollout")
        else:
            (self._rollout.begin if what == BEGIN else self._rollout.grant_full)(by)


def cycle_line(cycle: Cycle) -> str:
    """One line describing a cycle: mode, reason and other events."""
    change = f"{cycle.before} -> {cycle.mode}" if cycle.before != cycle.mode else str(cycle.mode)
    notes = list(cycle.notes)
    if cycle.mode is not Mode.MANUAL:
        lost = {f"no connection: {note}" for note in cycle.notes}  # once, and not for each channel
        faults = cycle.measured.faults.items()
        notes += [f"{channel}: {why}" for channel, why in faults if why not in lost]
    others = [note for note in dict.fromkeys(notes) if note not in cycle.reason]
    return "; ".join([f"{cycle.number}: {change} ({cycle.reason})", *others])
