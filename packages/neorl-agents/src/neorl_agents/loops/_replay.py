"""The rows of a log as they would have been under other gains, by the members of a model."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from neorl_agents.loops._judgement import over_members, stacked
from neorl_agents.loops._model import Interval, LoopModel
from neorl_agents.loops._record import LoopRecord
from neorl_core import InputError
from neorl_core.loops import PIDGains, step_response

_ROWS, _RESPONSE = 6000, 2000
_HOUR = 3600.0


class ReplayFigures(NamedTuple):
    """What the rows of a stretch show of one loop.

    Attributes:
        error_deviation: Standard deviation of setpoint minus measurement, in measured units.
        absolute_error: Its mean size.
        outside: Share of the rows in which its size is above the band.
        travel: Way of the output per hour, in output units.
    """

    error_deviation: Interval
    absolute_error: Interval
    outside: Interval
    travel: Interval


class Replay(NamedTuple):
    """The longest stretch in automatic, as logged and as predicted.

    Attributes:
        rows: The stretch, first row and the row after its last one.
        logged: Figures of the log itself; without intervals, their ends are the numbers.
        loops: Figures of each loop; the intervals are extremes over the members.
        measurement: Predicted measurements, shape ``(loop, member, time)``.
        output: Predicted outputs, likewise.
        band: Size of the error up to which a row counts as inside.
    """

    rows: tuple[int, int]
    logged: ReplayFigures
    loops: tuple[ReplayFigures, ...]
    measurement: np.ndarray
    output: np.ndarray
    band: float


def replay(
    record: LoopRecord, model: LoopModel, gains: Sequence[PIDGains], *, band: float
) -> Replay:
    """Replays the disturbance of a log under other gains.

    What the model does not explain by the logged output, ``w = y - G u``, is kept as the
    disturbance. Every loop starts from the logged output and meets it again, ``y = G u + w``, with
    the limits of the output. With today's true gains the log itself comes back, whatever the model;
    a loop whose gains differ is predicted as well as the model holds, for disturbances as those of
    the log.

    Args:
        record: Rows of the loop.
        model: Model with at least one member.
        gains: The loops.
        band: Size of the error up to which a row counts as inside, in measured units.

    Raises:
        InputError: If the model has no member, or no stretch in automatic has 32 rows with a
            setpoint.
    """
    if not model.members:
        raise InputError(f"{record.name}: a replay takes a model; {model.why_not}")
    start, end = _stretch(record)
    setpoint = record.setpoint[start:end] if record.has_setpoint else None
    if setpoint is None or end - start < 32:
        raise InputError(
            f"{record.name}: a replay takes at least 32 rows in automatic without a gap, with a "
            f"setpoint, got {max(end - start, 0)}"
        )
    y, u = record.measurement[start:end], record.output[start:end]
    # The middle is taken off, because single precision has seven digits.
    middle = float(np.mean(y))
    length = min(end - start, _RESPONSE)
    members = stacked(model, record.period)
    columns = np.asarray(list(gains), np.float32).T
    measured, sent = replayed_loops(
        members,
        PIDGains(*(jnp.asarray(column) for column in columns)),
        jnp.asarray(setpoint - middle, jnp.float32),
        jnp.asarray(y - middle, jnp.float32),
        jnp.asarray(u, jnp.float32),
        jnp.float32(record.period),
        jnp.asarray(record.output_range, jnp.float32),
        length=length,
    )
    measured = middle + np.asarray(measured, np.float64)
    sent = np.asarray(sent, np.float64)
    loops = tuple(
        ReplayFigures(
            *(
                over_members([one[number] for one in figures])
                for number in range(len(ReplayFigures._fields))
            )
        )
        for figures in (
            [
                _figures(setpoint, measured[i, j], sent[i, j], band, record.period)
                for j in range(len(model.members))
            ]
            for i in range(len(gains))
        )
    )
    logged = (Interval(x, x, x) for x in _figures(setpoint, y, u, band, record.period))
    return Replay((start, end), ReplayFigures(*logged), loops, measured, sent, band)


def _stretch(record: LoopRecord) -> tuple[int, int]:
    """The longest run of valid rows in automatic without a gap, its last rows if it is long."""
    on = record.valid & record.automatic
    joined = on[1:] & on[:-1] & (np.diff(record.segment) == 0)
    edges = np.flatnonzero(~np.concatenate([[False], joined, [False]]))
    if len(on) == 0 or not on.any():
        return 0, 0
    best = int(np.argmax(np.diff(edges)))
    start, end = int(edges[best]), int(edges[best + 1])
    return max(start, end - _ROWS), end


def _figures(
    setpoint: np.ndarray, y: np.ndarray, u: np.ndarray, band: float, period: float
) -> tuple[float, float, float, float]:
    error = setpoint - y
    return (
        float(np.std(error)),
        float(np.mean(np.abs(error))),
        float(np.mean(np.abs(error) > band)),
        float(np.mean(np.abs(np.diff(u))) * _HOUR / period),
    )


@functools.partial(jax.jit, static_argnames="length")
def replayed_loops(
    members: Any,
    gains: PIDGains,
    setpoint: Array,
    measurement: Array,
    output: Array,
    dt: Array,
    limits: Array,
    *,
    length: int,
) -> tuple[Array, Array]:
    """Measurements and outputs of loops on the disturbance of a log; pure.

    ``G`` is the step response ``g`` of a member: ``(G u)_t = sum_k g_k (u_{t-k} - u_{t-k-1})``. It
    is taken to ``length`` periods; from there on it goes on with its last slope if the process
    integrates, and else stays.

    Args:
        members: One process whose leaves are stacked along a first axis.
        gains: Gains, each of shape ``(loop,)``.
        setpoint: Shape ``(time,)``.
        measurement: Shape ``(time,)``.
        output: Shape ``(time,)``.
        dt: Period in seconds.
        limits: Low and high end of the output.
        length: Periods of the step response, at most the number of rows.

    Returns:
        Measurements and outputs, each of shape ``(loop, member, time)``.
    """
    nothing = PIDGains(*(jnp.zeros_like(dt) for _ in range(4)))

    def of_member(member: Any) -> tuple[Array, Array, Array]:
        g = step_response(member, nothing, dt=dt, steps=length, load=1.0).measurement
        slope = g[-1] - g[-2]
        moves = jnp.diff(output, prepend=output[:1])

        def logged(state: _Past, move: Array) -> tuple["_Past", Array]:
            state = state.after(move, slope)
            return state, state.effect(g, slope)

        _, effect = jax.lax.scan(logged, _Past.empty(length, dt), moves)
        return g, slope, measurement - effect

    def one(loop: PIDGains, g: Array, slope: Array, rest: Array) -> tuple[Array, Array]:
        start = _Loop(
            _Past.empty(length, dt),
            output[0],
            output[0] - loop.kp * (setpoint[0] - measurement[0]),
            jnp.zeros_like(dt),
            measurement[0],
        )
        step = functools.partial(_step, loop, g, slope, dt, limits)
        return jax.lax.scan(step, start, (setpoint, rest, jnp.arange(len(rest))))[1]

    responses, slopes, rests = jax.vmap(of_member)(members)
    over = jax.vmap(jax.vmap(one, (None, 0, 0, 0)), (0, None, None, None))
    return over(gains, responses, slopes, rests)


class _Past(NamedTuple):
    """Moves of the output, the newest first; the sum of those that are older, and its integral."""

    moves: Array
    older: Array
    ramp: Array

    @classmethod
    def empty(cls, length: int, dt: Array) -> "_Past":
        zero = jnp.zeros_like(dt)
        return cls(jnp.zeros(length, dt.dtype), zero, zero)

    def after(self, move: Array, slope: Array) -> "_Past":
        ramp = self.ramp + self.older
        older = self.older + self.moves[-1]
        return _Past(jnp.roll(self.moves, 1).at[0].set(move), older, ramp)

    def effect(self, g: Array, slope: Array) -> Array:
        """The measurement by all moves. A settled response has no slope but its rounding."""
        goes_on = jnp.abs(slope) * g.shape[0] > 0.05 * jnp.abs(g[-1])
        further = jnp.where(goes_on, slope * (self.ramp + self.older), 0)
        return jnp.sum(self.moves * g) + g[-1] * self.older + further


class _Loop(NamedTuple):
    past: _Past
    output: Array
    integral: Array
    derivative: Array
    last: Array


def _step(
    loop: PIDGains, g: Array, slope: Array, dt: Array, limits: Array, state: _Loop, row: Any
) -> tuple[_Loop, tuple[Array, Array]]:
    """One row: the move of this row acts from the next one, so the newest response is zero."""
    setpoint, rest, number = row
    before = state.past.after(jnp.zeros_like(dt), slope)
    measured = before.effect(g, slope) + rest
    error = setpoint - measured
    weight = dt / (loop.tau + dt)
    change = (measured - state.last) / dt
    derivative = state.derivative + weight * (change - state.derivative)
    # The first output is the logged one, of which the integral is what the rest leaves.
    integral = state.integral + jnp.where(number > 0, loop.ki * error * dt, 0)
    wanted = loop.kp * error + integral - loop.kd * derivative
    output = jnp.clip(wanted, limits[0], limits[1])
    # At a limit the integral is what would make the output just reach it.
    integral = integral + jnp.where(loop.ki != 0, output - wanted, 0)
    past = before._replace(moves=before.moves.at[0].set(output - state.output))
    return _Loop(past, output, integral, derivative, measured), (measured, output)
