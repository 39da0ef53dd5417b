"""A guarded policy with its constraints and a fallback that is always ready to take over."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from neorl_core import InputError, Policy, Spec
from neorl_core.control import follow
from neorl_safety.constraints import AnyConstraints, Constraints
from neorl_safety.constraints._constraints import as_constraints
from neorl_safety.filters import Candidate, Context, Flag, SafetyReport, empty_report, nearest
from neorl_safety.filters._filter import bit, distance, filter_request
from neorl_safety.filters._lowering import Limits, clip, usable_limits
from neorl_safety.guards._supervisor import (
    Supervision,
    SupervisorCarry,
    initial_supervisor,
    release,
    stop,
    supervise,
    supervision,
)
from neorl_safety.monitoring import Monitor, MonitorInput, range_monitor

# Bumpless transfer between any two controllers, by an offset that decays.


NEGLIGIBLE = 1e-3
"""Fraction of the actuator range below which an offset is dropped."""


def decayed_offset(
    proposal: Float[Array, " act"],
    last: Float[Array, " act"],
    offset: Float[Array, " act"],
    acted: Bool[Array, ""],
    *,
    span: Float[Array, " act"],
    dt: Float[Array, ""],
    settle: Float[Array, ""],
) -> Float[Array, " act"]:
    """The offset that is added to a controller's proposal in this step.

    ``b = (last - proposal) exp(-dt / settle)`` in the step in which the controller takes over, ``b
    = b exp(-dt / settle)`` in every later one. So the action continues from the current position
    and approaches the controller's own law with the time constant ``settle``, whether the
    controller has integral action or not (manual reset that decays).

    Args:
        proposal: Action that the controller proposes, within its limits; may hold NaN.
        last: Last action of the plant; NaN if unknown, and then there is no offset.
        offset: Offset in the last step.
        acted: Whether the controller acted in the last step.
        span: Range of every actuator.
        dt: Period in seconds.
        settle: Time constant in seconds; zero for no offset.

    Returns:
        The offset, always finite; zero where it would be negligible.
    """
    # `settle` of zero gives exp(-inf) = 0, and 0 / 0 with a bad period NaN, taken as zero below.
    decay = jnp.exp(-dt / settle)
    fresh = jnp.where(acted, offset, last - proposal)
    remaining = fresh * jnp.where(jnp.isfinite(decay), decay, 0)
    significant = jnp.isfinite(remaining) & (jnp.abs(remaining) > NEGLIGIBLE * span)
    return jnp.where(significant, remaining, 0)


Tree = TypeVar("Tree")
NOBODY, POLICY, FALLBACK = -1, 0, 1
SETTLE_PERIODS = 10
MOST_MONITORS = 32
FILTER_FAULTS = Flag.BAD_CONSTRAINT | Flag.ROWS_INFEASIBLE
"""Faults that the filter finds after the actor was chosen; they take effect in the next step."""
STILL = 1e-6
"""Fraction of the actuator range below which a command is not considered a movement."""
READ_BACK = 0.01
"""Fraction of the actuator range by which a read-back may differ from its command; a larger
difference means that another controller moved the channel."""


class GuardCarry(NamedTuple):
    """Carry of a guarded policy.

    Attributes:
        policy: Carry of the guarded policy.
        fallback: Carry of the fallback policy.
        previous: Action that the plant last received, shape ``(act,)``: the one reported by
            ``sent``, else the last own action; NaN before the first step.
        age: Steps since that report, shape ``(act,)``; zero means reported, larger means assumed.
        command: Last own action, shape ``(act,)``, to which deadband and resting time refer, so
            that read-back noise is not taken for a move; NaN before the first step.
        held: Seconds since a command last moved each channel, shape ``(act,)``; infinite if
            unknown.
        acted: Last actor: 0 the policy, 1 the fallback, -1 another controller or none yet.
        offset: Offset added to the proposal of the acting controller, shape ``(act,)``.
        supervisor: State of the supervisor.
        monitors: Carry of every monitor.
        scores: Value of every monitor in the last step, shape ``(monitor,)``.
        report: Report of the filter for the last step.
        band: Lowest and highest action that the policy is authorised to send, shape ``(2, act)``;
            infinite unless a roll-out narrows it.
    """

    policy: Any
    fallback: Any
    previous: Float[Array, " act"]
    age: Int[Array, " act"]
    command: Float[Array, " act"]
    held: Float[Array, " act"]
    acted: Int[Array, ""]
    offset: Float[Array, " act"]
    supervisor: SupervisorCarry
    monitors: tuple[Any, ...]
    scores: Float[Array, " monitor"]
    report: SafetyReport
    band: Float[Array, "2 act"]


class GuardedPolicy(eqx.Module):
    """A policy with its fallback and the filter between them and the plant; itself a policy.

    Attributes:
        policy: The guarded policy.
        constraints: Hard constraints on the action, in physical units.
        fallback: A deterministic policy that takes over when the guarded one cannot act.
        dt: Control period in seconds, scalar.
        supervision: Rules for when the fallback takes over and hands back.
        monitors: Monitors that may call for the fallback.
        candidate: Function that proposes actions that satisfy linear rows.
    """

    policy: Any
    constraints: Constraints
    fallback: Any
    dt: Float[Array, ""]
    supervision: Supervision
    monitors: tuple[Any, ...]
    candidate: Candidate = eqx.field(static=True, default=nearest)

    def initial_carry(self) -> GuardCarry:
        """Initial carries, no previous action, an empty report."""
        n_action, dtype = self.constraints.n_action, self.constraints.dtype
        unknown = jnp.full((n_action,), jnp.nan, dtype)
        return GuardCarry(
            policy=self.policy.initial_carry(),
            fallback=self.fallback.initial_carry(),
            previous=unknown,
            age=jnp.zeros((n_action,), jnp.int32),
            command=unknown,
            held=jnp.full_like(unknown, jnp.inf),
            acted=jnp.asarray(NOBODY, jnp.int32),
            offset=jnp.zeros_like(unknown),
            supervisor=initial_supervisor(),
            monitors=tuple(monitor.initial_carry() for monitor in self.monitors),
            scores=jnp.zeros((len(self.monitors),), jnp.float32),
            report=empty_report(n_action, dtype),
            band=jnp.stack([jnp.full((n_action,), end, dtype) for end in (-jnp.inf, jnp.inf)]),
        )

    def __call__(
        self, carry: GuardCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[GuardCarry, Float[Array, " act"]]:
        """One step of policy, fallback, monitors, supervisor and filter.

        Args:
            carry: Carry from :meth:`initial_carry`, the last step or :meth:`sent`.
            obs: One observation in physical units.
            key: Passed to the guarded policy; the fallback does not receive it.

        Returns:
            The new carry, with the report of this step, and an action that satisfies the
            constraints as stated for :func:`filter_action`.

        Raises:
            ValueError: If ``obs`` is not one-dimensional, or policy and fallback do not return one
                action for each constrained channel.
        """
        if obs.ndim != 1:
            raise ValueError(
                f"a guard takes one observation of rank 1, got shape {obs.shape}; for a batch, use "
                "jax.vmap"
            )
        policy_carry, proposed = self.policy(carry.policy, obs, key)
        fallback_carry, substitute = self.fallback(carry.fallback, obs, None)
        _require_widths(self.constraints, proposed, substitute)
        monitors, scores, alarms = self._run_monitors(
            carry, MonitorInput(obs, proposed, carry.previous)
        )
        alarm = alarms != 0
        finite = jnp.all(jnp.isfinite(proposed)) & jnp.all(jnp.isfinite(obs))
        unknown = jnp.any(carry.age > self.supervision.assume_for)
        fault = unknown | ~finite | ((carry.report.flags & FILTER_FAULTS) != 0)
        supervisor = supervise(self.supervision, carry.supervisor, fault, alarm)
        refused = bit(unknown, Flag.PREVIOUS_UNKNOWN) | bit(supervisor.latched, Flag.LATCHED)
        refused |= bit(supervisor.stopped, Flag.EMERGENCY_STOP)
        refused |= bit(supervisor.tripped & alarm, Flag.MONITOR_ALARM)
        refused |= bit(supervisor.tripped & finite & ~unknown & ~alarm, Flag.FALLBACK_HELD)
        policy_action, policy_offset = self._with_hand_over(carry, proposed, POLICY)
        fallback_action, fallback_offset = self._with_hand_over(carry, substitute, FALLBACK)
        position = self._position(carry)
        held = carry.held + self.dt.astype(carry.held.dtype)
        context = Context(obs, carry.previous, self.dt, fallback_action, held, position, carry.band)
        applied, report = filter_request(
            self.constraints, context, policy_action, refused, self.candidate
        )
        fallback_acts = (report.flags & Flag.FALLBACK_USED) != 0
        offset = jnp.where(fallback_acts, fallback_offset, policy_offset)
        flags = report.flags | bit(alarm, Flag.MONITOR_ALARM)
        flags |= bit(jnp.any(offset != 0), Flag.HAND_OVER)
        flags |= bit(jnp.any(carry.age > 0) & ~unknown, Flag.PREVIOUS_ASSUMED)
        next_carry = GuardCarry(
            policy=_keep_finite(policy_carry, carry.policy),
            fallback=_keep_finite(fallback_carry, carry.fallback),
            previous=applied.astype(carry.previous.dtype),
            age=jnp.minimum(carry.age + 1, 2**30),  # it must not wrap round to a young age
            command=applied.astype(carry.command.dtype),
            held=jnp.where(self._moves(position, applied), 0, held),
            acted=jnp.where(fallback_acts, FALLBACK, POLICY).astype(jnp.int32),
            offset=offset.astype(carry.offset.dtype),
            supervisor=supervisor,
            monitors=_keep_finite(monitors, carry.monitors),
            scores=scores,
            report=SafetyReport(flags, report.limits, distance(applied, proposed), alarms),
            band=carry.band,
        )
        return next_carry, applied

    def sent(self, carry: GuardCarry, action: Float[Array, " act"]) -> GuardCarry:
        """Reports to policy and fallback what the plant received; NaN if that is unknown.

        The policy that acted in the last step receives the applied action; the other one tracks it.
        If the applied action is unknown, the guard assumes its own last action, for as many steps
        as the supervision allows.
        """
        return self._applied_to(carry, action, carry.acted)

    def follow(self, carry: GuardCarry, action: Float[Array, " act"]) -> GuardCarry:
        """Reports to policy and fallback the action that another controller applied."""
        nobody = jnp.full_like(carry.acted, NOBODY)
        return self._applied_to(carry, action, nobody)._replace(acted=nobody)

    def stop(self, carry: GuardCarry) -> GuardCarry:
        """The carry after an emergency stop: the fallback acts from the next step on.

        It acts immediately by its own law, within the limits but without the offset of a hand-over,
        and stays in charge until :meth:`release`.
        """
        return carry._replace(supervisor=stop(carry.supervisor))

    def release(self, carry: GuardCarry) -> GuardCarry:
        """The carry after the latch is released: the policy acts again if nothing is wrong."""
        return carry._replace(supervisor=release(carry.supervisor))

    def _applied_to(self, carry: GuardCarry, action: Array, acted: Array) -> GuardCarry:
        known = jnp.isfinite(action)
        return carry._replace(
            policy=_applied_to(self.policy, carry.policy, action, acted == POLICY),
            fallback=_applied_to(self.fallback, carry.fallback, action, acted == FALLBACK),
            previous=jnp.where(known, action, carry.previous).astype(carry.previous.dtype),
            age=jnp.where(known, 0, carry.age),
        )

    def _position(self, carry: GuardCarry) -> Float[Array, " act"]:
        """Position of each channel: the last command, or where another controller has moved it."""
        span = _span(usable_limits(self.constraints, carry.command.dtype))
        policy_action = jnp.abs(carry.previous - carry.command) <= READ_BACK * span
        return jnp.where(policy_action, carry.command, carry.previous)

    def _moves(self, position: Array, applied: Array) -> Bool[Array, " act"]:
        """Whether a command moves a channel; always true for the first command."""
        span = _span(usable_limits(self.constraints, applied.dtype))
        # Not ``>``, which is false for the NaN position before the first command.
        return ~(jnp.abs(applied - position) <= STILL * span)

    def _with_hand_over(
        self, carry: GuardCarry, proposal: Array, actor: int
    ) -> tuple[Float[Array, " act"], Float[Array, " act"]]:
        """A proposal with the hand-over offset added, and that offset."""
        limits = usable_limits(self.constraints, proposal.dtype)
        inside = clip(proposal, limits.low, limits.high)
        immediate = carry.supervisor.stopped & (actor == FALLBACK)
        offset = decayed_offset(
            inside,
            carry.previous.astype(proposal.dtype),
            carry.offset.astype(proposal.dtype),
            carry.acted == actor,
            span=_span(limits),
            dt=self.dt.astype(proposal.dtype),
            settle=jnp.where(immediate, 0, self.supervision.settle).astype(proposal.dtype),
        )
        # An infinite proposal is not clipped, because it would then look like a finite one.
        shifted = jnp.isfinite(proposal) & (offset != 0)
        return jnp.where(shifted, inside + offset, proposal), offset

    def _run_monitors(
        self, carry: GuardCarry, inputs: MonitorInput
    ) -> tuple[tuple[Any, ...], Float[Array, " monitor"], UInt32[Array, ""]]:
        carries, values, alarms = [], [], jnp.zeros((), jnp.uint32)
        for i, (monitor, monitor_carry) in enumerate(
            zip(self.monitors, carry.monitors, strict=True)
        ):
            new, score = monitor(monitor_carry, inputs)
            carries.append(new)
            values.append(score.value.astype(carry.scores.dtype))
            alarms |= jnp.where(score.alarm, jnp.uint32(1 << i), jnp.uint32(0))
        return tuple(carries), jnp.stack(values) if values else carry.scores, alarms


def guard(
    policy: Policy,
    constraints: AnyConstraints,
    fallback: Policy,
    spec: Spec,
    *,
    supervision: Supervision | None = None,
    monitors: Sequence[Monitor] | None = None,
    candidate: Candidate = nearest,
) -> GuardedPolicy:
    """Adds constraints to a policy, with a fallback that is ready to take over without a bump.

    Every step runs both policies and filters the proposal; :func:`filter_action` states the
    guarantees for the result. The fallback takes over in the same step if the observation or the
    proposal is not finite, if an observation is beyond its measuring range, or if the applied
    action has been unknown for too long. It stays in charge until there has been no fault or alarm
    for some steps. While the policy acts, the fallback tracks the action that was really sent. A
    controller that takes over starts from the last action, by an offset that decays, so there is no
    bump between controllers with or without integral action. A carry never turns from finite to
    non-finite: such an entry keeps its last value, so one bad observation does not spoil an
    integrator or a recurrent state.

    Args:
        policy: Any policy in physical units.
        constraints: Constraints for the same action channels: from
            :func:`~neorl_safety.constraints.action_constraints`, or with further kinds.
        fallback: A deterministic policy for the same channels: usually the PID in use.
        spec: The control problem: its period, and the measuring ranges of its observations.
        supervision: Rules for when the fallback takes over and hands back. By default it takes over
            at the first alarm and hands back after five clean steps. Offsets decay over ten
            periods, and there is no latch.
        monitors: Monitors that may call for the fallback; the measuring ranges by default.
        candidate: Function that proposes actions that satisfy linear rows; static.

    Returns:
        The guarded policy. To run a batch, call ``guard`` inside a ``vmap``.

    Raises:
        InputError: If the constraints do not match the action channels of the specification, or
            there are more than 32 monitors.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_core import Channel, Spec
        >>> from neorl_core.control import ConstantPolicy
        >>> from neorl_safety.constraints import action_constraints
        >>> from neorl_safety.guards import guard
        >>> valve = Channel("valve", "%", 0.0, 100.0)
        >>> spec = Spec((Channel("level", "m", 0.0, 2.0),), (valve,), (), dt=60.0, horizon=100)
        >>> wild, calm = ConstantPolicy(jnp.array([jnp.nan])), ConstantPolicy(jnp.array([40.0]))
        >>> safe = guard(wild, action_constraints(spec), calm, spec)
        >>> carry, action = safe(safe.initial_carry(), jnp.ones(1))
        >>> action.tolist()
        [40.0]
    """
    full = as_constraints(constraints)
    channels = [(channel.name, channel.unit) for channel in spec.action]
    limited = list(zip(full.names, full.units, strict=True))
    if channels != limited:
        raise InputError(
            f"the constraints are for the channels {limited}, but the specification has the "
            f"actions {channels}"
        )
    settings = default_supervision(spec.dt) if supervision is None else supervision
    used_monitors = (range_monitor(spec),) if monitors is None else tuple(monitors)
    if len(used_monitors) > MOST_MONITORS:
        raise InputError(
            f"a guard takes at most {MOST_MONITORS} monitors, got {len(used_monitors)}"
        )
    dt = jnp.asarray(spec.dt, full.dtype)
    return GuardedPolicy(policy, full, fallback, dt, settings, used_monitors, candidate)


def default_supervision(dt: float) -> Supervision:
    """The default supervision of a guard, for a period in seconds."""
    return supervision(settle=SETTLE_PERIODS * dt)


def _span(limits: Limits) -> Float[Array, " act"]:
    return limits.actuator_high - limits.actuator_low


def _require_widths(constraints: Constraints, proposed: Array, substitute: Array) -> None:
    expected = (constraints.n_action,)
    for name, action in (("policy", proposed), ("fallback", substitute)):
        if action.shape != expected:
            raise ValueError(
                f"the {name} gives an action of shape {action.shape}; expected {expected} for the "
                f"channels {', '.join(constraints.names)}"
            )


def _applied_to(policy: Policy, carry: Tree, action: Array, acted: Bool[Array, ""]) -> Tree:
    monitor_carry, other = policy.sent(carry, action), follow(policy, carry, action)
    return _keep_finite(
        jax.tree.map(lambda a, b: jnp.where(acted, a, b), monitor_carry, other), carry
    )


def _keep_finite(new: Tree, old: Tree) -> Tree:
    """``new``, but with the old value wherever a finite number became a non-finite one."""
    return jax.tree.map(_keep_finite_leaf, new, old)


def _keep_finite_leaf(new: Array, old: Array) -> Array:
    if not jnp.issubdtype(jnp.result_type(new), jnp.inexact):
        return new
    return jnp.where(jnp.isfinite(old) & ~jnp.isfinite(new), old, new)
