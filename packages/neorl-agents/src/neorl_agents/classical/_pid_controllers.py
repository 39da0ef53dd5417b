"""PID loops fitted on a log: tuned from identified models, or imitated, or delay-compensated."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from neorl_agents.classical._first_order import FirstOrderModel, identify_first_order
from neorl_agents.classical._task import (
    FittedController,
    Log,
    ResolvedTask,
    Task,
    action_order,
    checked_log,
    leading,
    resolve,
)
from neorl_agents.classical._tuning import PIDGains, gain_margin, lambda_tuning, simc
from neorl_agents.controllers._pid_loops import SmithPredictor, TrackingPID, pid_policy
from neorl_core import InputError, Spec, Transition, highs, lows
from neorl_core.control import PID
from neorl_core.infrastructure import require_settings, setting

# PID gains that explain the logged actions.


LEAST_ROWS = 16
LONGEST_HOLD = 30
"""An action that is constant for more rows than this was not set by a loop."""
NEGLIGIBLE = 1e-5
"""A part that moves the action by less than this fraction of its movement is zero: float32 logs
show nothing finer."""


class ImitatedLoop(NamedTuple):
    """One loop as estimated from the log.

    Attributes:
        gains: Gains from least squares.
        bias: Mean action at zero error with an empty integral, in units of the action.
        share: Fraction of the variance of the action within episodes that they explain (R2).
        rows: Number of rows used: inside the action's range, and not held.
        contradiction: Gains of the fit without a constraint on signs if these differ; ``None`` if
            they agree.
    """

    gains: PIDGains
    bias: float
    share: float
    rows: int
    contradiction: PIDGains | None = None


def imitate_loop(
    log: Log,
    measurement: np.ndarray,
    setpoint: np.ndarray,
    action: np.ndarray,
    *,
    limits: tuple[float, float],
    dt: float,
    derivative: bool,
) -> ImitatedLoop:
    """Fits ``u = bias + kp e + ki integral(e) - kd dy/dt`` to the logged actions.

    Least squares with one bias per episode, since the log does not contain the initial integral of
    a loop. Rows at an end of the range are left out, because there the actuator's limit determined
    the action, not the loop. Stretches of more than 30 rows with a constant action are left out
    too, as in manual mode or at a valve stop, and a new bias starts after them. In shorter
    stretches the integral continues like that of a loop without saturation, so a log that is often
    saturated contains little information about ``ki``; ``share`` is then low.

    All gains have the same sign, as in any PID controller: with opposite signs the integral or
    derivative time would be negative. Where least squares gives opposite signs, the parts that
    explain less are left out. A part that contributes less than rounding is zero.

    ``dt`` is in seconds. Raises an ``InputError`` if too few rows are away from the limits, or
    nothing moved in those.

    Source: Ljung, System identification: theory for the user, 1999, chapter 7; one intercept per
    group as in Wooldridge, Econometric analysis of cross section and panel data, 2002, section
    10.5.
    """
    error = setpoint - measurement
    columns = [error, dt * _sums_in_pieces(error, log)]
    if derivative:
        before = np.where(log.age > 0, np.roll(measurement, 1), measurement)
        columns.append(-(measurement - before) / dt)
    low, high = limits
    slack = 1e-4 * (high - low)
    is_held = _is_held(action, log, 1e-6 * (high - low))
    keep = (action > low + slack) & (action < high - slack) & ~is_held
    if keep.sum() < LEAST_ROWS:
        raise InputError(
            f"the action moves inside its range in {int(keep.sum())} rows of the log, but at least "
            f"{LEAST_ROWS} are needed to imitate a PID: saturated or held actions do not show its "
            "gains; tune it from a model instead"
        )
    # After a stretch in which it did not act, the loop continues from an unknown integral.
    resumes = np.append(False, is_held[:-1] & ~is_held[1:])
    piece = np.cumsum((log.age == 0) | resumes)[keep] - 1
    design, target = np.stack(columns, axis=1)[keep], action[keep]
    centred, u = _without_means(design, piece), _without_means(target[:, None], piece)[:, 0]
    scales = np.sqrt(np.mean(centred**2, axis=0))
    if not (np.all(scales > 0) and np.any(u)):
        raise InputError(
            "the action or the control error is constant within every episode, so there is no loop "
            "to imitate; check the setpoint and the pairing of the loop"
        )
    solution, _, rank, _ = np.linalg.lstsq(centred / scales, u, rcond=1e-10)
    if rank < design.shape[1]:
        raise InputError(
            "the proportional, integral and derivative parts cannot be distinguished in the log; "
            "leave out the derivative, or record more changes of the setpoint"
        )
    least = NEGLIGIBLE * float(np.sqrt(np.mean(u**2)))
    free = np.where(np.abs(solution) > least, solution, 0.0)
    weights = _fit_of_one_sign(centred / scales, u, least) / scales
    residual = u - centred @ weights
    bias = float(np.mean(target - design @ weights))
    return ImitatedLoop(
        gains=_gains(weights),
        bias=bias if abs(bias) > 1e-9 * (high - low) else 0.0,
        share=max(0.0, float(1 - residual @ residual / (u @ u))),
        rows=int(keep.sum()),
        contradiction=_gains(free / scales) if free.min() < 0 < free.max() else None,
    )


def _gains(weights: np.ndarray) -> PIDGains:
    kp, ki, *kd = (float(weight) for weight in weights)
    return PIDGains(kp, ki, kd[0] if kd else 0.0, 0.0)


def _fit_of_one_sign(columns: np.ndarray, u: np.ndarray, least: float) -> np.ndarray:
    """Least squares with weights that all have one sign; those below ``least`` are zero."""
    from scipy.optimize import nnls  # Imported here: slow, and only needed for fits.

    signed = [sign * nnls(sign * columns, u)[0] for sign in (1.0, -1.0)]
    best = min(signed, key=lambda weights: float(np.sum((u - columns @ weights) ** 2)))
    return np.where(np.abs(best) > least, best, 0.0)


def _is_held(action: np.ndarray, log: Log, slack: float) -> np.ndarray:
    """Whether the action of every row belongs to a long run of equal actions."""
    moved = np.abs(np.diff(action, prepend=action[0])) > slack
    run = np.cumsum(moved | (log.age == 0))
    return np.bincount(run)[run] > LONGEST_HOLD


def _sums_in_pieces(values: np.ndarray, log: Log) -> np.ndarray:
    """Running sums that start again with every piece, including the current row."""
    total = np.cumsum(values)
    return total - (total[log.start] - values[log.start])


def _without_means(columns: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Columns minus the mean of their group."""
    count = np.bincount(group, minlength=group.max() + 1)
    count = np.maximum(count, 1)
    means = [np.bincount(group, column, minlength=len(count)) / count for column in columns.T]
    return columns - np.stack(means, axis=1)[group]


# Warnings about a fitted loop, in sentences that say what to do.


LEAST_MARGIN = 1.5
"""Smallest gain margin accepted without a warning; SIMC has about 3 on its own model."""
LEAST_SHARE = 0.5
"""Smallest explained share of the variance accepted without a warning in an imitated loop."""
NO_LOOP = 0.05
"""Explained share of the variance below which nothing is imitated: gains that do not repeat the
log say nothing about who recorded it, and would be retuned and judged as today's controller."""
MOST_ERROR = 0.2
"""Largest relative standard error of a gain accepted without a warning."""


def tuning_warnings(model: FirstOrderModel, margin: float | None, longest: int) -> list[str]:
    """Warnings about a loop that was tuned from ``model``."""
    warnings = []
    if margin is not None and margin < LEAST_MARGIN:
        instability = (
            "the loop is unstable"
            if margin < 1
            else f"the loop becomes unstable at {margin:.2g} times the plant's gain"
        )
        warnings.append(
            f"on a more flexible model of the same log {instability} (gain margin {margin:.2g}; "
            f"{LEAST_MARGIN:g} or more is sound). The identified dead time, "
            f"{model.delay * model.dt:g} s, is too short or the gain is too small, for example "
            "because the plant is not of first order; raise closed_loop, or fit lqg or a PID with "
            "rule = 'lambda'"
        )
    warnings += delay_warnings((model.delay,), ["the loop"], longest)
    if model.gain_error > MOST_ERROR:
        warnings.append(
            f"the standard error of its gain is {model.gain_error:.0%} of the gain, because the "
            "input moves too little compared with noise and disturbances; record a log in which it "
            "moves more, or use more rows"
        )
    if model.share <= 0:
        warnings.append(
            "the model explains none of the variance of the output changes: disturbances moved the "
            "output as much as the input did, or feedback hides the input's effect; compare gain "
            "and dead time with those of a step test"
        )
    return warnings


def imitation_warnings(loop: ImitatedLoop) -> list[str]:
    """Warnings about a loop that was fitted to the logged actions."""
    warnings = []
    if loop.contradiction is not None:
        free = {name: gain for name, gain in loop.contradiction._asdict().items() if gain}
        gains = ", ".join(f"{name} {gain:.4g}" for name, gain in free.items())
        zeros = " and ".join(name for name in free if not getattr(loop.gains, name))
        warnings.append(
            f"gains of opposite signs ({gains}) explain the logged actions best, but no PID "
            "controller has such gains (an integral or derivative time would be negative), so the "
            f"loop is fitted without {zeros}; check the setpoint and the pairing of the loop"
        )
    if loop.share < LEAST_SHARE:
        warnings.append(
            f"it explains {loop.share:.0%} of the variance of the action, so no such loop recorded "
            "this log (operators, limits, another setpoint or a feed-forward may have moved the "
            "action); do not take it for the logged controller"
        )
    return warnings


def delay_warnings(delay: tuple[int, ...], inputs: list[str], longest: int) -> list[str]:
    """Warnings about the delays of an identified plant."""
    at_limit = [name for name, periods in zip(inputs, delay, strict=True) if periods == longest > 0]
    if not at_limit:
        return []
    return [
        f"the dead time of {', '.join(at_limit)} is the longest that was tried, {longest} periods: "
        "either the true one is longer, then raise longest_delay, or the input has no effect on "
        "the measured outputs, then check the pairing"
    ]


Rule = Literal["simc", "lambda"]


@dataclasses.dataclass(frozen=True)
class TunedPID:
    """A PI or PID loop for each action, tuned from a first-order model of its loop.

    Attributes:
        rule: ``"simc"`` or ``"lambda"``.
        derivative: Whether the loops get a filtered derivative part; ``"simc"`` only.
        closed_loop: Closed-loop time as a multiple of the dead time (``"simc"``) or of the lag
            (``"lambda"``); larger is smoother.
        longest_delay: Longest dead time to try, in periods.
        rows: Number of rows of the log to use, from its start.
    """

    rule: Rule = "simc"
    derivative: bool = False
    closed_loop: float = setting(1.0, above=0)
    longest_delay: int = setting(30, low=0)
    rows: int = setting(20_000, low=1)

    def validate(self) -> None:
        """Raises an ``InputError`` that names the first setting with a bad value."""
        require_settings(self)

    def fit(self, log: Transition, spec: Spec, task: Task) -> FittedController:
        """See :class:`ClassicalController`."""
        self.validate()
        fit = _tuned(self, self._gains, log, spec, task, "a PID")
        return FittedController(fit.policy, fit.report)

    def _gains(self, model: FirstOrderModel) -> PIDGains:
        if self.rule == "lambda":
            return lambda_tuning(model, closed_loop=self.closed_loop)
        return simc(model, closed_loop=self.closed_loop, derivative=self.derivative)


@dataclasses.dataclass(frozen=True)
class SmithPID:
    """A PI loop with a Smith predictor for each action: dead-time compensation.

    The loop is tuned by :func:`simc` for the model without its dead time. An integrating loop gets
    a proportional controller: its prediction has an offset under load, so an integral would only
    cause overshoot.

    Attributes:
        closed_loop: Closed-loop time as a multiple of the dead time; a smaller value tolerates less
            model error.
        longest_delay: Longest dead time to try, in periods.
        rows: Number of rows of the log to use, from its start.
    """

    closed_loop: float = setting(0.5, above=0)
    longest_delay: int = setting(30, low=0)
    rows: int = setting(20_000, low=1)

    def validate(self) -> None:
        """Raises an ``InputError`` that names the first setting with a bad value."""
        require_settings(self)

    def fit(self, log: Transition, spec: Spec, task: Task) -> FittedController:
        """See :class:`ClassicalController`."""
        self.validate()
        fit = _tuned(self, self._gains, log, spec, task, "a Smith predictor", compensated=True)
        policy = SmithPredictor(
            controller=fit.policy,
            pole=_f32([model.pole for model in fit.models]),
            gain=_f32([model.gain for model in fit.models]),
            rest=_f32(fit.bias),
            delay=tuple(model.delay for model in fit.models),
            measured=fit.measured,
        )
        return FittedController(policy, fit.report)

    def _gains(self, model: FirstOrderModel) -> PIDGains:
        without_delay = model._replace(delay=0)
        factor = self.closed_loop * model.dead_time / without_delay.dead_time
        gains = simc(without_delay, closed_loop=max(factor, 1.0))
        return gains._replace(ki=0.0) if model.pole >= 1 else gains


@dataclasses.dataclass(frozen=True)
class ImitatedPID:
    """A PI or PID loop for each action with the gains that best explain the logged actions.

    Attributes:
        derivative: Whether to fit a derivative part.
        rows: Number of rows of the log to use, from its start.
    """

    derivative: bool = False
    rows: int = setting(100_000, low=1)

    def validate(self) -> None:
        """Raises an ``InputError`` that names the first setting with a bad value."""
        require_settings(self)

    def fit(self, log: Transition, spec: Spec, task: Task) -> FittedController:
        """See :class:`ClassicalController`.

        Raises:
            InputError: Also if a loop explains almost nothing of its logged action.
        """
        self.validate()
        resolved = resolve(task, spec)
        order = action_order(resolved, spec, "a PID")
        rows = leading(checked_log(log, spec), self.rows)
        loops = []
        for i, (y, u) in enumerate(zip(resolved.controlled, resolved.manipulated, strict=True)):
            loops.append(
                imitate_loop(
                    rows,
                    rows.obs[:, y],
                    _setpoints(rows, resolved, i),
                    rows.action[:, u],
                    limits=(spec.action[u].low, spec.action[u].high),
                    dt=spec.dt,
                    derivative=self.derivative,
                )
            )
            if loops[-1].share < NO_LOOP:
                raise InputError(
                    f"{spec.obs[y].name} by {spec.action[u].name}: the best PID explains "
                    f"{loops[-1].share:.1%} of the variance of the action, and at least "
                    f"{NO_LOOP:.0%} is needed, so no such loop recorded this log; name the loop's "
                    "own measurement and setpoint, or declare the controller that runs today"
                )
        bias = [loop.bias for loop in loops]
        policy = _bank([loop.gains for loop in loops], bias, resolved, spec, order)
        report = [
            {
                **loop.gains._asdict(),
                "bias": loop.bias,
                "share": loop.share,
                "rows": loop.rows,
                "warnings": imitation_warnings(loop),
            }
            for loop in loops
        ]
        return FittedController(policy, {"loops": report})


class _Tuned(NamedTuple):
    """Loops tuned from their models: in the order of the action channels, but for the report."""

    policy: PID | TrackingPID
    models: list[FirstOrderModel]
    bias: list[float]
    measured: tuple[int, ...]
    report: dict[str, Any]


def _tuned(
    settings: Any,
    rule: Callable[[FirstOrderModel], PIDGains],
    log: Transition,
    spec: Spec,
    task: Task,
    kind: str,
    *,
    compensated: bool = False,
) -> _Tuned:
    """Identifies every loop, and tunes it by a rule."""
    resolved = resolve(task, spec)
    order = action_order(resolved, spec, kind)
    rows, longest = leading(checked_log(log, spec), settings.rows), settings.longest_delay
    models, gains, bias, reports = [], [], [], []
    for i, (y, u) in enumerate(zip(resolved.controlled, resolved.manipulated, strict=True)):
        model = identify_first_order(rows, y, u, dt=spec.dt, longest=longest)
        own, margin = rule(model), None
        # The dead time may be longer than the longest that was tried.
        if model.delay < longest:
            margin = gain_margin(rows, y, u, own, model, longest=longest, compensated=compensated)
        models.append(model)
        gains.append(own)
        bias.append(model.holding(float(np.mean(_setpoints(rows, resolved, i)))))
        reports.append(_loop_report(model, own, margin, longest))
    bank = _bank(gains, bias, resolved, spec, order)
    measured = tuple(resolved.controlled[i] for i in order)
    in_order = [models[i] for i in order], [bias[i] for i in order]
    return _Tuned(bank, *in_order, measured, {"loops": reports})


def _setpoints(log: Log, resolved: ResolvedTask, loop: int) -> np.ndarray:
    source = resolved.source[loop]
    if source >= 0:
        return log.obs[:, source]
    return np.full(len(log.obs), resolved.setpoint[loop])


def _bank(
    gains: list[PIDGains],
    bias: list[float],
    resolved: ResolvedTask,
    spec: Spec,
    order: tuple[int, ...],
) -> PID | TrackingPID:
    """The loops in the order of the action channels."""
    low, high = np.asarray(lows(spec.action)), np.asarray(highs(spec.action))
    bias_in = np.clip([bias[i] for i in order], low, high)
    setpoint = np.where(np.isnan(resolved.setpoint), 0.0, resolved.setpoint)
    loops = PID(
        kp=_f32([gains[i].kp for i in order]),
        ki=_f32([gains[i].ki for i in order]),
        kd=_f32([gains[i].kd for i in order]),
        tau=_f32([gains[i].tau for i in order]),
        setpoint=_f32(setpoint[list(order)]),
        bias=_f32(bias_in),
        low=_f32(low),
        high=_f32(high),
        dt=jnp.float32(spec.dt),
        override_below=jnp.zeros(0, jnp.float32),
        override_cap=jnp.zeros(0, jnp.float32),
        measured=tuple(resolved.controlled[i] for i in order),
    )
    return pid_policy(loops, tuple(resolved.source[i] for i in order))


def _loop_report(
    model: FirstOrderModel, gains: PIDGains, margin: float | None, longest: int
) -> dict[str, Any]:
    """Model, gains and warnings of a loop, for a report."""
    settles = model.pole < 1
    return {
        "gain": model.gain,
        "pole": model.pole,
        "static_gain": float(model.static_gain) if settles else None,
        "gain_error": model.gain_error,
        "slope": float(model.slope),
        "time_constant": float(model.time_constant) if settles else None,
        "delay": model.delay,
        "share": model.share,
        **gains._asdict(),
        "gain_margin": margin,
        "warnings": tuning_warnings(model, margin, longest),
    }


def _f32(values: Any) -> jnp.ndarray:
    return jnp.asarray(values, jnp.float32)
