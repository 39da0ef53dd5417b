"""The task of a classical controller and what its fit needs: a log, a result."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from neorl_agents.sampling._histories import unmasked_pieces
from neorl_core import Channel, InputError, Policy, Spec, Transition
from neorl_core.infrastructure import unknown_name

# The columns of a log that a fit reads: checked, in float64, without masked rows.


class Log(NamedTuple):
    """Rows of many episodes in order of time, float64 in physical units.

    Attributes:
        obs: Shape ``(row, obs)``.
        action: Shape ``(row, act)``.
        next_obs: Shape ``(row, obs)``.
        start: First row of the piece that each row belongs to, shape ``(row,)``. A piece ends with
            its episode, and before a masked row.
        last: Whether a row is the last of its piece, shape ``(row,)``.
    """

    obs: np.ndarray
    action: np.ndarray
    next_obs: np.ndarray
    start: np.ndarray
    last: np.ndarray

    @property
    def age(self) -> np.ndarray:
        """Number of rows before each row in its piece."""
        return np.arange(len(self.start)) - self.start


def checked_log(log: Transition, spec: Spec) -> Log:
    """The columns of a flat log, checked.

    Reads ``next_obs``, ``terminated``, ``truncated``, and ``mask`` if given. Raises an
    ``InputError`` if a column is missing, has another shape than ``spec`` requires, holds a number
    that is not finite, or no row is left.
    """
    rows = unmasked_pieces(log, spec, ("next_obs", "terminated", "truncated"), "a fit needs it")
    return Log(**rows.columns, start=rows.start, last=rows.last)


def leading(log: Log, rows: int) -> Log:
    """The first ``rows`` rows of the log."""
    leading_rows = Log(*(column[:rows].copy() for column in log))
    leading_rows.last[-1:] = True
    return leading_rows


# Task of a classical controller: the channel it controls, its setpoint, and its actuator.


@dataclasses.dataclass(frozen=True)
class Loop:
    """One controlled variable, the manipulated variable paired with it, and its setpoint.

    Attributes:
        controlled: Name of an observation channel.
        manipulated: Name of an action channel.
        setpoint: Setpoint of the controlled variable in its unit, or the name of the observation
            channel that holds it.
        low: Smallest value that the controlled variable should take, in its unit.
        high: Largest value that it should take.
        rate: Largest rate of change of the manipulated variable, in its unit per second.
    """

    controlled: str
    manipulated: str
    setpoint: float | str
    low: float = -math.inf
    high: float = math.inf
    rate: float = math.inf


@dataclasses.dataclass(frozen=True)
class Task:
    """The loops of a plant, one for each controlled variable.

    Attributes:
        loops: One or more loops; no controlled or manipulated variable appears twice.
        measured: Further observation channels that carry information about the state of the plant,
            such as velocities; models and observers use them.
    """

    loops: tuple[Loop, ...]
    measured: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "loops", tuple(self.loops))
        object.__setattr__(self, "measured", tuple(self.measured))
        if not self.loops:
            raise InputError(
                "a task needs at least one loop; name the controlled and the manipulated channel"
            )
        for part in ("controlled", "manipulated"):
            names = [getattr(loop, part) for loop in self.loops]
            repeated = sorted({name for name in names if names.count(name) > 1})
            if repeated:
                raise InputError(
                    f"the {part} channel {', '.join(repeated)} is in more than one loop; use it "
                    "in one only"
                )
        for loop in self.loops:
            _check_loop(loop)


class ResolvedTask(NamedTuple):
    """A task as indices into the channels of a specification.

    Attributes:
        controlled: Index of every controlled observation.
        manipulated: Index of every manipulated action, in the order of the loops.
        source: Index of the observation that carries each setpoint; -1 if it is fixed.
        setpoint: Fixed setpoints, NaN if an observation carries it, shape ``(loop,)``.
        measured: Indices of all observations that models and observers use, controlled ones first.
        low: Smallest values of the controlled variables, shape ``(loop,)``.
        high: Largest values, shape ``(loop,)``.
        rate: Largest rates of change of all actions, infinite without a limit, shape ``(act,)``.
    """

    controlled: tuple[int, ...]
    manipulated: tuple[int, ...]
    source: tuple[int, ...]
    setpoint: np.ndarray
    measured: tuple[int, ...]
    low: np.ndarray
    high: np.ndarray
    rate: np.ndarray


def resolve(task: Task, spec: Spec) -> ResolvedTask:
    """The task in terms of the channels of ``spec``.

    Raises an ``InputError`` if a name is not a channel, the two channels of a loop are swapped, a
    fixed setpoint lies outside the measuring range, or a measured channel carries a setpoint.
    """
    _require_pairs(task, spec)
    controlled = tuple(_index("observation", loop.controlled, spec.obs) for loop in task.loops)
    manipulated = tuple(_index("action", loop.manipulated, spec.action) for loop in task.loops)
    source, setpoints = [], []
    for loop, index in zip(task.loops, controlled, strict=True):
        is_channel = isinstance(loop.setpoint, str)
        source.append(_index("observation", str(loop.setpoint), spec.obs) if is_channel else -1)
        setpoints.append(
            math.nan if is_channel else _in_range(spec.obs[index], float(loop.setpoint))
        )
    additional = [_index("observation", name, spec.obs) for name in task.measured]
    measured = tuple(dict.fromkeys([*controlled, *additional]))
    rate = np.full(spec.n_action, math.inf)
    rate[list(manipulated)] = [loop.rate for loop in task.loops]
    conflicting = sorted(spec.obs[i].name for i in set(measured) & set(source))
    if conflicting:
        raise InputError(
            f"{', '.join(conflicting)} is given both as a setpoint and as a measured channel; "
            "give it as one of them"
        )
    return ResolvedTask(
        controlled,
        manipulated,
        tuple(source),
        np.asarray(setpoints),
        measured,
        np.asarray([loop.low for loop in task.loops]),
        np.asarray([loop.high for loop in task.loops]),
        rate,
    )


def spans(channels: Sequence[Channel], indices: Sequence[int]) -> np.ndarray:
    """Lengths of the ranges of some channels."""
    return np.asarray([channels[i].high - channels[i].low for i in indices])


def action_order(resolved: ResolvedTask, spec: Spec, kind: str) -> tuple[int, ...]:
    """For every action channel, the index of the loop that moves it.

    Raises an ``InputError`` if an action channel of the plant has no loop.
    """
    missing = [c.name for i, c in enumerate(spec.action) if i not in resolved.manipulated]
    if missing:
        raise InputError(
            f"no loop manipulates {', '.join(missing)}, but {kind} needs one loop for every action "
            "of the plant; add the loop"
        )
    return tuple(resolved.manipulated.index(i) for i in range(spec.n_action))


def _require_pairs(task: Task, spec: Spec) -> None:
    """Refuses a loop whose two channels are swapped."""
    obs, actions = ({c.name for c in channels} for channels in (spec.obs, spec.action))
    for loop in task.loops:
        if loop.controlled in actions - obs and loop.manipulated in obs - actions:
            raise InputError(
                f"{loop.controlled} is an action channel and {loop.manipulated} an observation; a "
                f"loop names the controlled variable first: {loop.manipulated} {loop.controlled}"
            )


def _index(kind: str, name: str, channels: Sequence[Channel]) -> int:
    names = [channel.name for channel in channels]
    if name not in names:
        raise unknown_name(f"{kind} channel", name, names)
    return names.index(name)


def _in_range(channel: Channel, value: float) -> float:
    if not channel.low <= value <= channel.high:
        raise InputError(
            f"the setpoint of {channel.name!r} must be in its range, {channel.low:g} to "
            f"{channel.high:g} {channel.unit}, got {value:g}; check the unit"
        )
    return value


def _check_loop(loop: Loop) -> None:
    if not isinstance(loop.setpoint, str) and not math.isfinite(loop.setpoint):
        raise InputError(f"the setpoint of {loop.controlled!r} must be finite, got {loop.setpoint}")
    if not loop.rate > 0:
        raise InputError(f"the rate of {loop.manipulated!r} must be positive, got {loop.rate}")
    if not loop.low < loop.high:
        raise InputError(
            f"the limits of {loop.controlled!r} must be ordered: low must be below high, got "
            f"{loop.low} and {loop.high}"
        )


# Protocol of a classical controller, and the result of a fit.


class FittedController(NamedTuple):
    """A controller fitted on a log.

    Attributes:
        policy: The controller in physical units, ready to run; use ``vmap`` for batches.
        report: The identified model and the chosen settings, ready for JSON: gains, delays,
            fractions of variance. Warnings about the fit are under ``warnings``; those of a single
            loop are in its entry of ``loops``.
    """

    policy: Policy
    report: dict[str, Any]


@runtime_checkable
class ClassicalController(Protocol):
    """A frozen object whose fields are its settings, as plain numbers and words."""

    def fit(self, log: Transition, spec: Spec, task: Task) -> FittedController:
        """Fits the controller to a log.

        Args:
            log: Flat columns in physical units; rows of one episode follow one another, and its
                last row is terminated or truncated.
            spec: Channels of the log.
            task: The loops, with controlled and manipulated channels and setpoints.

        Returns:
            The policy and the report of the fit.

        Raises:
            InputError: If a setting, the task or the log cannot be used; the message names it.
        """
        ...
