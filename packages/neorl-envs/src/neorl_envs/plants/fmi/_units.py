"""Running instances of one co-simulation unit, stepped as if a step were a pure function.

A unit has one hidden state that moves forward, while a plant is a function of its state. Here a
state is a *point*: a digest of the start values and of all inputs so far, which determine the state
of a unit. An instance that stands at the point is stepped in place, which is what every episode
needs. For a point that no instance stands at, because another input was tried there before, an
instance is reset and the inputs are applied again.
"""

import atexit
import hashlib
import shutil
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import fmpy
import numpy as np
from fmpy.fmi2 import FMU2Slave
from fmpy.fmi3 import FMU3Slave
from jaxtyping import Float, Float64, UInt32

from neorl_core import InputError

POINT = 4
"""Words of 32 bits that name a point; all zero after a failure."""
IDLE = 64
"""Instances that are kept in any case; more are kept if a batch is larger."""
REAL = ("Real", "Float64")
"""Type of a variable that can be a channel, in FMI 2.0 and 3.0."""


class UnitError(Exception):
    """Raised when a unit refuses a call; the message is that of the unit's tool."""


class Instance:
    """One instance of a unit, from its first initialisation to the end of the process."""

    def __init__(self, description: Any, folder: str, number: int) -> None:
        """Loads the library, which is loaded once a process, and makes an instance."""
        simulation = description.coSimulation
        self._new = description.fmiVersion.startswith("3")
        self._arguments = {
            "guid": description.guid,
            "modelIdentifier": simulation.modelIdentifier,
            "unzipDirectory": folder,
            "instanceName": f"neorl_{number}",
        }
        self._resettable = True
        self._instantiate()

    def _instantiate(self) -> None:
        self._unit: Any = (FMU3Slave if self._new else FMU2Slave)(**self._arguments)
        self._unit.instantiate()
        self._fresh = True

    def begin(self, references: Sequence[int], values: Sequence[float]) -> None:
        """Initialises the unit with start values; a second time it is reset, not loaded again."""
        if not self._fresh and self._resettable:
            try:
                self._unit.reset()
                self._fresh = True
            except Exception:  # a unit without a reset that works is made anew
                self._resettable = False
        if not self._fresh:
            self.free()
            self._instantiate()
        self._fresh = False
        if self._new:
            self._set(references, values)
            self._unit.enterInitializationMode(startTime=0.0)
        else:
            self._unit.setupExperiment(startTime=0.0)
            self._set(references, values)
            self._unit.enterInitializationMode()
        self._unit.exitInitializationMode()

    def step(
        self, references: Sequence[int], inputs: Sequence[float], time: float, period: float
    ) -> None:
        """One communication step with constant inputs."""
        self._set(references, inputs)
        self._unit.doStep(currentCommunicationPoint=time, communicationStepSize=period)

    def read(self, references: Sequence[int]) -> list[float]:
        """The values of variables."""
        read = self._unit.getFloat64 if self._new else self._unit.getReal
        return read(references)

    def _set(self, references: Sequence[int], values: Sequence[float]) -> None:
        if len(references):
            write = self._unit.setFloat64 if self._new else self._unit.setReal
            write(references, values)

    def free(self) -> None:
        """Frees the instance; the library stays until the process ends."""
        if self._new:
            self._unit.fmi3FreeInstance(self._unit.component)
        else:
            self._unit.fmi2FreeInstance(self._unit.component)


class Units:
    """All instances of one unit in this process.

    Args:
        path: The unit, a file ``*.fmu`` of FMI 2.0 or 3.0 with co-simulation.
        inputs: Names of the variables that a step sets.
        outputs: Names of the variables that are read.
        starts: Names of the parameters that a reset sets.
        period: Communication step, in seconds.
        horizon: Steps of the longest episode.

    Raises:
        InputError: If the unit has no co-simulation, or no binary for this platform.
        KeyError: If it has no variable of a name; a declaration is checked for names and types.
    """

    def __init__(
        self,
        path: str,
        *,
        inputs: Sequence[str],
        outputs: Sequence[str],
        starts: Sequence[str],
        period: float,
        horizon: int,
    ) -> None:
        """Reads the description and unpacks the unit; instances are made when they are needed."""
        self.description = read_description(path)
        numbers = {v.name: int(v.valueReference) for v in self.description.modelVariables}
        self._inputs, self._outputs, self._starts = (
            [numbers[name] for name in names] for names in (inputs, outputs, starts)
        )
        self.n_outputs = len(outputs)
        self._period, self._horizon = period, horizon
        simulation = self.description.coSimulation
        self._only_one = bool(simulation.canBeInstantiatedOnlyOncePerProcess)
        self._capacity = 1 if self._only_one else IDLE
        self._folder = str(fmpy.extract(path))
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        self._at: OrderedDict[bytes, Instance] = OrderedDict()
        self._idle: list[Instance] = []
        self._made = 0
        self._lock = threading.Lock()  # compiled programs may call from several threads
        self.replayed = 0
        """Steps that were simulated again to return to an earlier point."""

    def begin(
        self, starts: Float[np.ndarray, "*batch start"]
    ) -> tuple[UInt32[np.ndarray, "*batch 4"], Float64[np.ndarray, "*batch output"]]:
        """Starts an episode for every row of start values; returns the points and the outputs.

        Raises:
            UnitError: If the unit cannot be initialised with these values.
        """
        starts = np.asarray(starts, np.float64)
        rows = starts.reshape(-1, len(self._starts)) if len(self._starts) else _rows(starts)
        with self._lock:
            self._make_room(len(rows))
            answers = [self._begin(row) for row in rows]
        return _stacked(answers, starts.shape[:-1], len(self._outputs))

    def step(
        self,
        points: UInt32[np.ndarray, "*batch 4"],
        times: np.ndarray,
        starts: Float[np.ndarray, "*batch start"],
        history: Float[np.ndarray, "*batch time input"],
        inputs: Float[np.ndarray, "*batch input"],
    ) -> tuple[UInt32[np.ndarray, "*batch 4"], Float64[np.ndarray, "*batch output"]]:
        """Steps a batch of states by one period.

        Args:
            points: Where the states stand, from :meth:`begin` or the last step.
            times: Steps since the start, shape ``batch``.
            starts: Start values of the episodes.
            history: Inputs of all steps so far; only its first ``times`` rows are read.
            inputs: Inputs of this step.

        Returns:
            The new points and outputs. After a step that the unit refuses, the point is zero and
            the outputs are NaN, and stay so.
        """
        points, times, starts, history, inputs = map(
            np.asarray, (points, times, starts, history, inputs)
        )
        batch = inputs.shape[:-1]
        flat = (
            points.reshape(-1, POINT),
            times.reshape(-1),
            starts.reshape(-1, starts.shape[-1]) if starts.shape[-1] else _rows(starts),
            history.reshape(-1, *history.shape[-2:]),
            inputs.reshape(-1, inputs.shape[-1]),
        )
        with self._lock:
            self._make_room(len(flat[0]))
            answers = [self._step(*row) for row in zip(*flat, strict=True)]
        return _stacked(answers, batch, len(self._outputs))

    def _begin(self, starts: np.ndarray) -> tuple[np.ndarray, list[float]]:
        instance = self._free_instance()
        try:
            instance.begin(self._starts, starts.tolist())
        except Exception as error:
            raise UnitError(f"the unit cannot start with {starts.tolist()}: {error}") from error
        point = _digest(np.zeros(POINT, np.uint32), np.asarray(starts, np.float32))
        self._place(point, instance)
        return point, instance.read(self._outputs)

    def _step(
        self,
        point: np.ndarray,
        time: np.ndarray,
        starts: np.ndarray,
        history: np.ndarray,
        inputs: np.ndarray,
    ) -> tuple[np.ndarray, list[float]]:
        unknown = np.zeros(POINT, np.uint32), [float("nan")] * len(self._outputs)
        if not point.any():
            return unknown
        steps = int(time)
        instance = self._at.pop(point.tobytes(), None)
        try:
            if instance is None:
                instance = self._free_instance()
                instance.begin(self._starts, np.asarray(starts, np.float64).tolist())
                for done in range(steps):
                    instance.step(
                        self._inputs, history[done].tolist(), done * self._period, self._period
                    )
                self.replayed += steps
            instance.step(self._inputs, inputs.tolist(), steps * self._period, self._period)
            outputs = instance.read(self._outputs)
        except Exception:  # the unit says that it cannot go on: a trip, not an error of the caller
            if instance is not None:
                self._idle.append(instance)
            return unknown
        after = _digest(point, np.asarray(inputs, np.float32))
        if steps + 1 < self._horizon:
            self._place(after, instance)
        else:
            self._idle.append(instance)
        return after, outputs

    def _place(self, point: np.ndarray, instance: Instance) -> None:
        """Notes where an instance stands; one that stood at the same point becomes free."""
        other = self._at.pop(point.tobytes(), None)
        if other is not None:
            self._idle.append(other)
        self._at[point.tobytes()] = instance

    def _make_room(self, batch: int) -> None:
        if not self._only_one:
            self._capacity = max(self._capacity, 2 * batch)

    def _free_instance(self) -> Instance:
        """An instance that nobody needs, a new one, or the one that was used longest ago."""
        if self._idle:
            return self._idle.pop()
        if self._made < self._capacity:
            self._made += 1
            return Instance(self.description, self._folder, self._made)
        return self._at.popitem(last=False)[1]


def read_description(path: str) -> Any:
    """The description of a unit.

    Raises:
        InputError: If it cannot be read, has another version than 2.0 or 3.0, has no
            co-simulation, or has no binary for this platform.
    """
    try:
        description = fmpy.read_model_description(path, validate=False)
        platforms = fmpy.supported_platforms(path)
    except Exception as error:  # not a unit at all, or a damaged one
        raise InputError(f"{path}: cannot read this unit: {error}") from error
    if not str(description.fmiVersion).startswith(("2.", "3.")):
        raise InputError(
            f"{path}: it is a unit of FMI {description.fmiVersion}; export it as FMI 2.0 or 3.0"
        )
    if description.coSimulation is None:
        raise InputError(
            f"{path}: it has no co-simulation, so it brings no solver; export it for co-simulation"
        )
    if fmpy.platform not in platforms and fmpy.platform_tuple not in platforms:
        raise InputError(
            f"{path}: it has binaries for {', '.join(platforms) or 'no platform'}, and this machine"
            f" is {fmpy.platform}; export it for this platform too"
        )
    return description


def _digest(before: np.ndarray, added: np.ndarray) -> np.ndarray:
    """The point that follows another one; never zero."""
    text = hashlib.blake2b(before.tobytes() + added.tobytes(), digest_size=4 * POINT).digest()
    point = np.frombuffer(text, np.uint32).copy()
    point[0] |= 1
    return point


def _rows(starts: np.ndarray) -> np.ndarray:
    """As many empty rows as the batch has entries."""
    return np.zeros((int(np.prod(starts.shape[:-1], dtype=int)), 0))


def _stacked(
    answers: Sequence[tuple[np.ndarray, list[float]]], batch: tuple[int, ...], outputs: int
) -> tuple[np.ndarray, np.ndarray]:
    points, values = zip(*answers, strict=True)
    return (
        np.stack(points).reshape(*batch, POINT),
        np.asarray(values, np.float64).reshape(*batch, outputs),
    )
