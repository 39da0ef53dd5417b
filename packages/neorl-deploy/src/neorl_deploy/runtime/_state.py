"""The state of a runtime as files, so that an emergency stop survives the process.

There are two files, because creating a file costs milliseconds on a busy disk, which a control step
cannot spare. The state itself is replaced atomically after every event: a stop, a release, a reset,
a take-over. Between two events, every step overwrites one of two slots, in turn, in a second file
beside it, ``NAME.steps``. A slot names the state that it continues and contains a digest, so a slot
that is older than the state, torn or unrelated is ignored.
"""

import base64
import contextlib
import hashlib
import math
import os
import secrets
import struct
import time
import weakref
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neorl_deploy._errors import DeployError
from neorl_deploy.bundle._strict_json import dump_compact, head, parse_strict, require_head
from neorl_deploy.runtime._decision import LOGGER, Event
from neorl_deploy.runtime._forms import Layout

KIND, VERSION = "runtime-state", 1
LARGEST = 512 * 2**20
"""Largest number of bytes read from a file: the allowed size of the arrays of a bundle's carry."""
NUMBERS = ("saved_at", "step")
OLDEST = 2**30
"""Number of steps at which an age stops counting, as in the guard itself."""


RECORD = struct.Struct("<32sQd?")
"""Head of a step's slot: digest of the state, number of the step, time, who acted."""


class StateError(DeployError):
    """A state file is missing, damaged, or of another bundle."""


class State(NamedTuple):
    """State that survives a process.

    Attributes:
        bundle: Digest of the bundle that it belongs to.
        saved_at: Time at which it was written, in seconds since 1970.
        step: Number of decisions so far.
        fell_back: Whether the fallback made the last decision.
        words: The carry, as words.
        events: Events that the runtime stored, oldest first.
    """

    bundle: str
    saved_at: float
    step: int
    fell_back: bool
    words: np.ndarray
    events: tuple[Event, ...]

    @property
    def seconds_ago(self) -> float:
        """Age of the state; infinite if the clock has been set back since."""
        passed = time.time() - self.saved_at
        return passed if passed >= 0 else math.inf

    @property
    def age_text(self) -> str:
        """The age as text, such as ``"12.3 s old"``."""
        passed = self.seconds_ago
        return f"{passed:.1f} s old" if passed < math.inf else "from the future: the clock was set"


def write_state(path: Path, state: State, *, durable: bool) -> bytes:
    """Replaces an earlier state; a reader sees either the old or the new one, never a part.

    Args:
        path: The file.
        state: State to write.
        durable: Whether to wait until it would survive a power failure.

    Returns:
        The digest of what was written.

    Raises:
        StateError: If the file cannot be written.
    """
    content = {
        **state._asdict(),
        "words": base64.b64encode(state.words.astype("<u4").tobytes()).decode(),
        "events": [list(event) for event in state.events],
    }
    digest = hashlib.sha256(dump_compact(content)).hexdigest()
    data = dump_compact({**head(KIND, VERSION), "content": content, "sha256": digest})
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("xb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
        if durable:
            sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise StateError(f"cannot write the state {path}: {error.strerror}") from error
    return bytes.fromhex(digest)


class StateFile:
    """The files of a runtime that keeps its state.

    Args:
        path: State file; the file with the step slots lies beside it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._digest = self._on_disk = b""
        self._slots: Any = None
        self._failed = False

    @property
    def stored(self) -> bool:
        """Whether the last state was written."""
        return bool(self._digest) and not self._failed

    def replace(self, state: State, *, durable: bool) -> None:
        """Writes a state with all its events atomically.

        If there is no room for another file, the words of the state, in which a stop is, are still
        put into the file of the step slots, which takes no further room.

        Args:
            state: State to write.
            durable: Whether to wait until it would survive a power failure.

        Raises:
            StateError: If it cannot be written.
        """
        self._digest = b""
        try:
            digest = write_state(self.path, state, durable=durable)
        except StateError:
            if self._slots is not None:
                with contextlib.suppress(StateError):
                    self._overwrite(state, self._on_disk)
            raise
        if self._slots is None:
            slots_path = _slots_path(self.path)
            try:
                slots_path.touch()
                self._slots = slots_path.open("r+b", buffering=0)
            except OSError as error:
                raise StateError(
                    f"cannot write the state {slots_path}: {error.strerror}"
                ) from error
            weakref.finalize(self, self._slots.close)
        self._digest = self._on_disk = digest

    def step(self, state: State, *, events: bool) -> None:
        """Writes the state after a step; a failure is logged once, until writing works again."""
        try:
            if events or not self._digest:
                self.replace(state, durable=False)
            else:
                self._overwrite(state, self._digest)
            self._failed = False
        except StateError as error:
            # A full disk must not prevent the plant from receiving an action.
            if not self._failed:
                LOGGER.error("step %d: %s", state.step, error)
            self._failed = True

    def _overwrite(self, state: State, digest: bytes) -> None:
        """Writes the words of a state that began with the events of the file of this digest."""
        stored = RECORD.pack(digest, state.step, state.saved_at, state.fell_back)
        data = stored + state.words.astype("<u4").tobytes()
        try:
            # Two slots in turn: a write that is cut off leaves the step before it whole.
            self._slots.seek(state.step % 2 * (len(data) + 32))
            self._slots.write(data + hashlib.sha256(data).digest())
        except OSError as error:
            raise StateError(f"cannot write the state {self.path}: {error.strerror}") from error


def _slots_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.steps")


def _latest(path: Path, digest: bytes, state: State) -> State:
    """The state after the last step written since; the given state if there is none."""
    size = RECORD.size + 4 * len(state.words) + 32
    try:
        data = _slots_path(path).read_bytes()[: 2 * size]
    except OSError:
        return state
    for slot in (data[:size], data[size:]):
        body, stored = slot[:-32], slot[-32:]
        if len(slot) != size or hashlib.sha256(body).digest() != stored:
            continue
        stored_digest, step, saved_at, fell_back = RECORD.unpack_from(body)
        if stored_digest == digest and step > state.step:
            words = np.frombuffer(body[RECORD.size :], "<u4")
            state = state._replace(step=step, saved_at=saved_at, fell_back=fell_back, words=words)
    return state


def read_state(path: Path, digest: str, n_words: int) -> State:
    """Reads a state of a bundle.

    Args:
        path: The file.
        digest: Digest of the bundle.
        n_words: Number of words of its carry.

    Returns:
        The state.

    Raises:
        StateError: If it is missing, damaged or belongs to another bundle; one line.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError as error:
        raise StateError(f"there is no state {path}") from error
    except (OSError, ValueError) as error:
        raise StateError(f"cannot read the state {str(path)!r}: {error}") from error
    try:
        document = require_head(parse_strict(data, str(path)), KIND, VERSION, str(path))
        content = document["content"]
        if document["sha256"] != hashlib.sha256(dump_compact(content)).hexdigest():
            raise StateError(f"the state {path} is damaged: its content does not match its digest")
        state = _state_of(content)
    except StateError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())
        raise StateError(f"the state {path} cannot be read: {reason:.200}") from error
    if state.bundle != digest:
        raise StateError(
            f"the state {path} belongs to the bundle sha256:{state.bundle}, this one is "
            f"sha256:{digest}"
        )
    if len(state.words) != n_words:
        raise StateError(f"the state {path} holds {len(state.words)} words, expected {n_words}")
    return _latest(path, bytes.fromhex(document["sha256"]), state)


def _state_of(content: dict[str, Any]) -> State:
    saved_at, step = (content[name] for name in NUMBERS)
    if not (isinstance(saved_at, float) and type(step) is int and step >= 0):
        raise ValueError("saved_at and step must be numbers")
    words = np.frombuffer(base64.b64decode(content["words"], validate=True), "<u4")
    events = tuple(
        Event(int(step), str(kind), str(reason)) for step, kind, reason in content["events"]
    )
    return State(str(content["bundle"]), saved_at, step, bool(content["fell_back"]), words, events)


def sync_folder(folder: Path) -> None:
    """Makes the new name survive a power failure too, if the system supports that."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def aged_words(state: State, layout: Layout, fresh: np.ndarray, dt: float) -> np.ndarray:
    """The words of a restored carry, with ages increased by the time since the state was written.

    These are the ages in steps and the seconds for which each channel has held. If the time is
    unknown, every age takes its largest value.
    """
    words = np.array(fresh)
    words[: len(state.words)] = state.words
    passed = state.seconds_ago
    periods = min(math.ceil(passed / dt), OLDEST) if passed < math.inf else OLDEST
    # In 64 bits, because a sum that wraps round would make an old value young.
    age = np.minimum(layout.get(words, ".age").astype(np.int64) + periods, OLDEST)
    words = layout.set(words, ".age", age)
    return layout.set(words, ".held", layout.get(words, ".held") + np.float32(passed))
