"""PID loops fitted on a log: tuned from identified models, or imitated, or delay-compensated."""

import dataclasses
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from neorl_agents.classical._first_order import FirstOrderModel, identify_first_order
from neorl_agents.classical._fit_warnings import imitation_warnings, tuning_warnings
from neorl_agents.classical._gain_margin import gain_margin
from neorl_agents.classical._imitation import imitate_loop
from neorl_agents.classical._log import Log, checked_log, leading
from neorl_agents.classical._protocol import FittedController
from neorl_agents.classical._settings import require_choice, require_positive, require_whole
from neorl_agents.classical._task import ResolvedTask, Task, action_order, resolve
from neorl_agents.classical._tuning import PIDGains, lambda_tuning, simc
from neorl_agents.controllers._smith_predictor import SmithPredictor
from neorl_agents.controllers._tracking_pid import TrackingPID, pid_policy
from neorl_core import Spec, Transition, highs, lows
from neorl_core.control import PID

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
    closed_loop: float = 1.0
    longest_delay: int = 30
    rows: int = 20_000

    def validate(self) -> None:
        """Raises an ``InputError`` that names the first setting with a bad value."""
        require_choice(self, "rule", ("simc", "lambda"))
        require_positive(self, "closed_loop")
        require_whole(self, 0, "longest_delay")
        require_whole(self, 1, "rows")

    def fit(self, log: Transition, spec: Spec, task: Task) -> FittedController:
        """See :class:`ClassicalController`."""
        self.validate()
        loops, models, resolved = _models(self, log, spec, task)
        gains = [self._gains(model) for model in models]
        bias = [_bias(model, resolved, i, loops) for i, model in enumerate(models)]
        policy = _bank(gains, bias, resolved, spec, action_order(resolved, spec, "a PID"))
        margins = _margins(self, loops, resolved, models, gains, compensated=False)
        return FittedController(policy, _loop_reports(models, gains, margins, self.longest_delay))

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

    closed_loop: float = 0.5
    longest_delay: int = 30
    rows: int = 20_000

    def validate(self) -> None:
        """Raises an ``InputError`` that names the first setting with a bad value."""
        require_positive(self, "closed_loop")
        require_whole(self, 0, "longest_delay")
        require_whole(self, 1, "rows")

    def fit(self, log: Transition, spec: Spec, task: Task) -> FittedController:
        """See :class:`ClassicalController`."""
        self.validate()
        loops, models, resolved = _models(self, log, spec, task)
        gains = [self._gains(model) for model in models]
        bias = [_bias(model, resolved, i, loops) for i, model in enumerate(models)]
        order = action_order(resolved, spec, "a Smith predictor")
        bank = _bank(gains, bias, resolved, spec, order)
        model_parameters = {
            name: np.array([getattr(models[i], name) for i in order]) for name in _MODEL
        }
        policy = SmithPredictor(
            controller=bank,
            pole=_f32(model_parameters["pole"]),
            gain=_f32(model_parameters["gain"]),
            rest=_f32(np.array([bias[i] for i in order])),
            delay=tuple(int(delay) for delay in model_parameters["delay"]),
            measured=tuple(resolved.controlled[i] for i in order),
        )
        margins = _margins(self, loops, resolved, models, gains, compensated=True)
        return FittedController(policy, _loop_reports(models, gains, margins, self.longest_delay))

    def _gains(self, model: FirstOrderModel) -> PIDGains:
        without_delay = model._replace(delay=0)
        factor = self.closed_loop * model.dead_time / without_delay.dead_time
        gains = simc(without_delay, closed_loop=max(factor, 1.0))
        return gains._replace(ki=0.0) if model.pole >= 1 else gains


_MODEL = ("pole", "gain", "delay")


@dataclasses.dataclass(frozen=True)
class ImitatedPID:
    """A PI or PID loop for each action with the gains that best explain the logged actions.

    Attributes:
        derivative: Whether to fit a derivative part.
        rows: Number of rows of the log to use, from its start.
    """

    derivative: bool = False
    rows: int = 100_000

    def validate(self) -> None:
        """Raises an ``InputError`` that names the first setting with a bad value."""
        require_whole(self, 1, "rows")

    def fit(self, log: Transition, spec: Spec, task: Task) -> FittedController:
        """See :class:`ClassicalController`."""
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


def _models(
    settings: Any, log: Transition, spec: Spec, task: Task
) -> tuple[Log, list[FirstOrderModel], ResolvedTask]:
    """The first-order model of every loop."""
    resolved = resolve(task, spec)
    rows = leading(checked_log(log, spec), settings.rows)
    pairs = zip(resolved.controlled, resolved.manipulated, strict=True)
    longest = settings.longest_delay
    models = [identify_first_order(rows, y, u, dt=spec.dt, longest=longest) for y, u in pairs]
    return rows, models, resolved


def _setpoints(log: Log, resolved: ResolvedTask, loop: int) -> np.ndarray:
    source = resolved.source[loop]
    if source >= 0:
        return log.obs[:, source]
    return np.full(len(log.obs), resolved.setpoint[loop])


def _bias(model: FirstOrderModel, resolved: ResolvedTask, loop: int, log: Log) -> float:
    """The input that holds the setpoint, according to the model."""
    return model.holding(float(np.mean(_setpoints(log, resolved, loop))))


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


def _margins(
    settings: Any,
    log: Log,
    resolved: ResolvedTask,
    models: list[FirstOrderModel],
    gains: list[PIDGains],
    *,
    compensated: bool,
) -> list[float | None]:
    """The gain margin of every loop; none if its dead time may be longer than the longest tried."""
    margins: list[float | None] = []
    loops = zip(resolved.controlled, resolved.manipulated, gains, models, strict=True)
    for y, u, loop_gains, model in loops:
        longest = settings.longest_delay
        delay_fits = model.delay < longest
        margin = gain_margin(log, y, u, loop_gains, model, longest=longest, compensated=compensated)
        margins.append(margin if delay_fits else None)
    return margins


def _loop_reports(
    models: list[FirstOrderModel],
    gains: list[PIDGains],
    margins: list[float | None],
    longest: int,
) -> dict[str, Any]:
    """Models, gains and warnings of all loops, for a report."""
    loops = []
    for model, loop_gains, margin in zip(models, gains, margins, strict=True):
        settles = model.pole < 1
        loops.append(
            {
                "gain": model.gain,
                "pole": model.pole,
                "static_gain": float(model.static_gain) if settles else None,
                "gain_error": model.gain_error,
                "slope": float(model.slope),
                "time_constant": float(model.time_constant) if settles else None,
                "delay": model.delay,
                "share": model.share,
                **loop_gains._asdict(),
                "gain_margin": margin,
                "warnings": tuning_warnings(model, margin, longest),
            }
        )
    return {"loops": loops}


def _f32(values: Any) -> jnp.ndarray:
    return jnp.asarray(values, jnp.float32)
