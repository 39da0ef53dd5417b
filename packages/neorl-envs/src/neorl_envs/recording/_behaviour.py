"""Behaviour policies of a log: the plant's controllers and its operators, by quality."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_core import Environment, Policy, Spec, highs, lows
from neorl_core.control import UniformPolicy, follow
from neorl_core.infrastructure import unknown_name

# Reads and replaces the setpoints of controllers.


Controller = TypeVar("Controller", bound=Policy)


def setpoint_of(policy: Policy) -> Float[Array, " loop"]:
    """The setpoints of a controller from its field ``setpoint``; empty if it has none."""
    setpoints: Any = getattr(policy, "setpoint", None)
    return jnp.zeros(0) if setpoints is None else setpoints


def with_setpoint(policy: Controller, setpoint: Float[Array, " loop"]) -> Controller:
    """The controller with other setpoints; unchanged if it has none.

    Calls the controller's method ``with_setpoint(setpoint)`` if there is one; otherwise replaces
    its field ``setpoint``.
    """
    if setpoint.size == 0:
        return policy
    controller: Any = policy
    if hasattr(policy, "with_setpoint"):
        return controller.with_setpoint(setpoint)
    return dataclasses.replace(controller, setpoint=setpoint)


def setpoint_names(spec: Spec, n_loops: int) -> list[str]:
    """Names of the setpoint columns, those of the actions if there is one loop per action."""
    if n_loops == spec.n_action:
        return [f"{channel.name}.SP" for channel in spec.action]
    return [f"loop{i}.SP" for i in range(n_loops)]


# Interventions of operators in a running loop: setpoint steps, manual holds, test signals.
#
# A log recorded under a single, undisturbed controller contains no information beyond that
# controller. This module adds the variation that makes a plant log informative, as pure functions
# of (plan, state, key).


class OperatorPlan(NamedTuple):
    """Frequency and size of the operators' interventions; every field is data.

    Attributes:
        amplitude: Amplitude of the pseudo-random binary signal on every manipulated variable, in
            its unit, shape ``(act,)``.
        dwell: Mean number of steps between two changes of sign, scalar.
        setpoint_step: Largest change of every loop's setpoint, in its unit, shape ``(loop,)``.
        setpoint_high: Highest setpoint of every loop, shape ``(loop,)``.
        setpoint_group: Group of every loop; the loops of a group move together, shape ``(loop,)``.
        setpoint_every: Mean number of steps between two setpoint steps, scalar; infinite for
            none.
        hold_every: Mean number of steps between two manual holds, scalar; infinite for none.
        hold_shortest: Length of the shortest hold in steps, scalar integer.
        hold_longest: Length of the longest hold in steps, scalar integer.
        watch_low: A hold ends when an observation falls below this value, shape ``(obs,)``;
            ``-inf`` for an observation that is not watched.
        watch_high: A hold ends when an observation rises above this value, shape ``(obs,)``;
            ``inf`` for an observation that is not watched.
    """

    amplitude: Float[Array, " act"]
    dwell: Float[Array, ""]
    setpoint_step: Float[Array, " loop"]
    setpoint_high: Float[Array, " loop"]
    setpoint_group: Int[Array, " loop"]
    setpoint_every: Float[Array, ""]
    hold_every: Float[Array, ""]
    hold_shortest: Int[Array, ""]
    hold_longest: Int[Array, ""]
    watch_low: Float[Array, " obs"]
    watch_high: Float[Array, " obs"]


def excitation_plan(amplitude: Float[ArrayLike, " act"], n_loops: int, n_obs: int) -> OperatorPlan:
    """A plan with test signals only: no setpoint steps, manual holds or watched observations.

    Args:
        amplitude: Amplitude of the signal on every manipulated variable, in its unit.
        n_loops: Number of the controller's loops.
        n_obs: Number of measured channels.

    Returns:
        A plan whose signals change sign every 10 steps on average.
    """
    never = jnp.asarray(jnp.inf)
    return OperatorPlan(
        amplitude=jnp.asarray(amplitude, jnp.float32),
        dwell=jnp.asarray(10.0),
        setpoint_step=jnp.zeros(n_loops),
        setpoint_high=jnp.full(n_loops, jnp.inf),
        setpoint_group=jnp.arange(n_loops, dtype=jnp.int32),
        setpoint_every=never,
        hold_every=never,
        hold_shortest=jnp.asarray(1, jnp.int32),
        hold_longest=jnp.asarray(1, jnp.int32),
        watch_low=jnp.full(n_obs, -jnp.inf),
        watch_high=jnp.full(n_obs, jnp.inf),
    )


class OperatorState(NamedTuple):
    """Current interventions of the operators.

    Attributes:
        sign: Signs of the binary signals, shape ``(act,)``.
        offset: Offsets of the setpoints in units of the largest step, in [-1, 1], shape
            ``(loop,)``.
        left: Number of steps until the manual hold ends; 0 in automatic.
        channel: The manipulated variable that is in manual while ``left > 0``.
    """

    sign: Float[Array, " act"]
    offset: Float[Array, " loop"]
    left: Int[Array, ""]
    channel: Int[Array, ""]


def init_operators(plan: OperatorPlan, key: PRNGKeyArray) -> OperatorState:
    """The operators at the start of an episode, with all loops in automatic at their setpoints."""
    sign = jax.random.rademacher(key, plan.amplitude.shape, plan.amplitude.dtype)
    nothing = jnp.zeros((), jnp.int32)
    return OperatorState(sign, jnp.zeros_like(plan.setpoint_step), nothing, nothing)


def operator_step(
    plan: OperatorPlan, state: OperatorState, obs: Float[Array, " obs"], key: PRNGKeyArray
) -> tuple[OperatorState, Bool[Array, " act"], Float[Array, " act"]]:
    """Makes one step of the operators.

    Test signals change sign with probability ``1 / dwell``. With probability
    ``1 / setpoint_every``, a setpoint step samples new offsets for all groups. In automatic, a
    hold of one random manipulated variable starts with probability ``1 / hold_every`` and lasts for
    a uniformly distributed number of steps. It ends early if an observation leaves its watched
    range, and none starts while an observation is outside.

    Returns the new state, which manipulated variables are in manual, and the test signal to add to
    the controller's output (zero in manual).
    """
    flips, steps, offsets, holds, lengths, channels = jax.random.split(key, 6)
    shape, dtype = plan.amplitude.shape, plan.amplitude.dtype
    flip = jax.random.uniform(flips, shape, dtype) < 1 / plan.dwell
    sign = jnp.where(flip, -state.sign, state.sign)
    drawn = jax.random.uniform(offsets, plan.setpoint_step.shape, dtype, -1, 1)
    moved = jax.random.uniform(steps, (), dtype) < 1 / plan.setpoint_every
    offset = jnp.where(moved, drawn[plan.setpoint_group], state.offset)

    calm = jnp.all((obs >= plan.watch_low) & (obs <= plan.watch_high))
    begins = (jax.random.uniform(holds, (), dtype) < 1 / plan.hold_every) & (state.left <= 1)
    length = jax.random.randint(lengths, (), plan.hold_shortest, plan.hold_longest + 1)
    left = jnp.where(begins, length, jnp.maximum(state.left - 1, 0))
    left = jnp.where(calm, left, jnp.zeros_like(left))
    channel = jnp.where(begins, jax.random.randint(channels, (), 0, shape[0]), state.channel)
    new = OperatorState(sign, offset, left, channel)
    manual = in_manual(plan, new)
    return new, manual, jnp.where(manual, 0, plan.amplitude * sign)


def operator_log_prob(
    plan: OperatorPlan,
    before: OperatorState,
    after: OperatorState,
    obs: Float[Array, " obs"],
    *,
    started: bool | Bool[Array, ""],
    steps_setpoints: bool,
) -> Float[Array, ""]:
    """The log-density of what the operators drew in one step, given what they had drawn before.

    It is the sum of the log-densities of independent draws that have an effect:

    - each test signal with an amplitude kept its sign or changed it, ``1 - 1 / dwell`` or ``1 /
      dwell``; in the first step of an episode, a half;
    - setpoints did not move, ``1 - 1 / setpoint_every``, or every group of them moved to an offset
      that is uniform in [-1, 1] of the largest step, ``1 / setpoint_every * (1 / 2)^groups``;
    - where a manual hold could begin, none did, ``1 - 1 / hold_every``, or one did, ``1 /
      hold_every`` divided by the number of lengths and of manipulated variables.

    Args:
        plan: Plan of the operators.
        before: Their state before the step; the first step of an episode compares with no hold and
            offsets of zero.
        after: Their state after :func:`operator_step`.
        obs: The observation of the step.
        started: False in the first step of an episode.
        steps_setpoints: Whether the setpoints are those of the controller.
    """
    dtype = plan.amplitude.dtype
    flip_rate, step_rate, hold_rate = 1 / plan.dwell, 1 / plan.setpoint_every, 1 / plan.hold_every
    kept = jnp.where(after.sign == before.sign, jnp.log1p(-flip_rate), jnp.log(flip_rate))
    signs = jnp.where(started, kept, jnp.log(0.5))
    total = jnp.sum(jnp.where(plan.amplitude > 0, signs, 0))
    if steps_setpoints:
        moving, loops = plan.setpoint_step > 0, jnp.arange(plan.setpoint_step.size)
        members = moving[None] & (plan.setpoint_group[None] == loops[:, None])
        groups = jnp.any(members, axis=1).astype(dtype).sum()
        moved = jnp.any(moving & (after.offset != before.offset))
        move = jnp.log(step_rate) + groups * jnp.log(0.5)
        steps = jnp.where(moved, move, jnp.log1p(-step_rate))
        total = total + jnp.where(groups > 0, steps, 0)
    calm = jnp.all((obs >= plan.watch_low) & (obs <= plan.watch_high))
    choices = (plan.hold_longest - plan.hold_shortest + 1) * plan.amplitude.size
    begin = jnp.log(hold_rate) - jnp.log(choices.astype(dtype))
    hold = jnp.where(after.left > 0, begin, jnp.log1p(-hold_rate))
    return total + jnp.where(calm & (before.left <= 1), hold, 0)


def in_manual(plan: OperatorPlan, state: OperatorState) -> Bool[Array, " act"]:
    """Which manipulated variables the operators hold."""
    return (jnp.arange(plan.amplitude.shape[0]) == state.channel) & (state.left > 0)


def moved_setpoint(
    plan: OperatorPlan, state: OperatorState, setpoint: Float[Array, " loop"]
) -> Float[Array, " loop"]:
    """The setpoints of a controller after the operators' steps, clipped to the upper limits."""
    requested = setpoint + state.offset * plan.setpoint_step
    return jnp.minimum(requested, jnp.maximum(plan.setpoint_high, setpoint))


# Protocol of environments on which a log can be recorded.


@runtime_checkable
class Recordable(Environment, Protocol):
    """An environment with controllers, operators and random parameters.

    It must be hashable, because compiled programs take it as a static argument.

    Attributes:
        name: Name and version, such as ``"ChemicalReactor-v0"``. The version increases whenever
            results change.
    """

    name: ClassVar[str]

    def tunings(self) -> Mapping[str, Policy]:
        """The plant's controllers by name; their outputs are in the order of the actions."""
        ...

    def operator_plan(self) -> OperatorPlan:
        """Interventions of the operators during the recording of a log."""
        ...

    def sample_params(
        self, key: PRNGKeyArray, *, preset: str = "plant", spread: float = 0.15
    ) -> Any:
        """Samples the parameters of one episode with the given relative spread."""
        ...


# Behaviour policies of a log: every controller of the plant combined with its operators.


class BehaviourCarry(NamedTuple):
    """Carry of the controller and the operators.

    Attributes:
        control: Carry of the controller.
        operators: State of the operators.
        started: Whether the operators have begun; their initial state is sampled in the first
            step.
        position: The last action that the plant received, shape ``(act,)``; NaN before the first
            step.
        signal: Test signal added in the last step, shape ``(act,)``.
    """

    control: Any
    operators: OperatorState
    started: Bool[Array, ""]
    position: Float[Array, " act"]
    signal: Float[Array, " act"]


class BehaviourPolicy(eqx.Module):
    """A controller with random setpoint steps, manual holds and test signals.

    It acts exactly as in :func:`neorl_envs.collect_log`, so the logged behaviour can be run again
    from chosen starts and compared there with another policy. Because it is random, it needs a key.
    Holds and test signals work with any policy; setpoints are stepped only if the controller has
    as many as the plan.

    Attributes:
        controller: The controller.
        plan: Plan of the operators.
    """

    controller: Policy
    plan: OperatorPlan

    @property
    def steps_setpoints(self) -> bool:
        """Whether the operators can step setpoints of this controller."""
        setpoints = setpoint_of(self.controller)
        return setpoints.shape == self.plan.setpoint_step.shape and setpoints.size > 0

    def initial_carry(self) -> BehaviourCarry:
        """A carry with all loops in automatic; the operators begin in the first step."""
        amplitude = self.plan.amplitude
        nothing = jnp.zeros((), jnp.int32)
        offset = jnp.zeros_like(self.plan.setpoint_step)
        return BehaviourCarry(
            control=self.controller.initial_carry(),
            operators=OperatorState(jnp.ones_like(amplitude), offset, nothing, nothing),
            started=jnp.zeros((), jnp.bool_),
            position=jnp.full_like(amplitude, jnp.nan),
            signal=jnp.zeros_like(amplitude),
        )

    def __call__(
        self, carry: BehaviourCarry, obs: Float[Array, " obs"], key: PRNGKeyArray
    ) -> tuple[BehaviourCarry, Float[Array, " act"]]:
        """Makes one step of operators and controller.

        Args:
            carry: Carry from :meth:`initial_carry`, the last step or :meth:`sent`.
            obs: One observation in physical units.
            key: Random key for the operators.

        Returns:
            The new carry and the action. A channel in manual keeps its last position. If that is
            unknown, the action is NaN, which leaves the actuator where it is.
        """
        for_start, for_operators = jax.random.split(key)
        for_controller = jax.random.fold_in(key, 2)
        fresh = init_operators(self.plan, for_start)
        operators = jax.tree.map(
            lambda old, new: jnp.where(carry.started, old, new), carry.operators, fresh
        )
        operators, manual, signal = operator_step(self.plan, operators, obs, for_operators)
        controller = with_setpoint(self.controller, self.setpoint(operators))
        control, proposed = controller(carry.control, obs, for_controller)
        action = jnp.where(manual, carry.position, proposed + signal)
        started = jnp.ones((), jnp.bool_)
        return BehaviourCarry(control, operators, started, carry.position, signal), action

    def setpoint(self, operators: OperatorState) -> Float[Array, " loop"]:
        """The active setpoints; empty for a controller without setpoints."""
        setpoints = setpoint_of(self.controller)
        return (
            moved_setpoint(self.plan, operators, setpoints) if self.steps_setpoints else setpoints
        )

    def sent(self, carry: BehaviourCarry, action: Float[Array, " act"]) -> BehaviourCarry:
        """Informs the controller of the received action without the test signal.

        Loops in manual follow the received action.
        """
        manual, received = in_manual(self.plan, carry.operators), action - carry.signal
        to_controller = received
        if hasattr(self.controller, "follow"):
            to_controller = jnp.where(manual, jnp.nan, received)
        control = self.controller.sent(carry.control, to_controller)
        if hasattr(self.controller, "follow"):
            control = follow(self.controller, control, jnp.where(manual, received, jnp.nan))
        return carry._replace(control=control, position=action)


def behaviour_policies(
    env: Recordable,
    controllers: Mapping[str, Policy] | None = None,
    plan: OperatorPlan | None = None,
) -> dict[str, BehaviourPolicy]:
    """The policies that take turns, episode by episode, in :func:`neorl_envs.collect_log`.

    Args:
        env: An environment of this package.
        controllers: The controllers by name; the environment's own by default.
        plan: Plan of the operators; the environment's own by default.

    Returns:
        One policy for each controller, in the same order.
    """
    policies: Mapping[str, Policy] = env.tunings() if controllers is None else controllers
    operators = env.operator_plan() if plan is None else plan
    return {name: BehaviourPolicy(policy, operators) for name, policy in policies.items()}


# Qualities of logs: which controllers act, and how operators intervene.


class Quality(NamedTuple):
    """Controllers and operators with which a log is recorded.

    Attributes:
        controllers: The policies that take turns, by name.
        plan: Plan of the operators.
    """

    controllers: Mapping[str, Policy]
    plan: OperatorPlan


def _random(env: Recordable) -> Quality:
    low, high = (jnp.asarray(ends(env.spec.action)) for ends in (lows, highs))
    return Quality({"random": UniformPolicy(low, high)}, _undisturbed_plan(env))


def _medium(env: Recordable) -> Quality:
    name, first = next(iter(env.tunings().items()))
    return Quality({name: first}, env.operator_plan())


def _mixed_quality(env: Recordable) -> Quality:
    return Quality(env.tunings(), env.operator_plan())


def _expert(env: Any) -> Quality:
    return Quality({env.reference: env.tunings()[env.reference]}, _undisturbed_plan(env))


def _undisturbed_plan(env: Recordable) -> OperatorPlan:
    """A plan without interventions, of the same structure as the plant's, to share its program."""
    loops = env.operator_plan().setpoint_step.size
    return excitation_plan(jnp.zeros(env.spec.n_action), loops, env.spec.n_obs)


QUALITIES: Mapping[str, Callable[[Any], Quality]] = {
    "random": _random,
    "medium": _medium,
    "mixed": _mixed_quality,
    "expert": _expert,
}


def quality(env: Recordable, name: str) -> Quality:
    """Controllers and operators of a quality, for :func:`neorl_envs.collect_log`.

    ``"random"``: uniform actions without operators. ``"medium"``: the plant's first, ordinary
    tuning with operators. ``"mixed"``: all tunings in equal parts, with operators. ``"expert"``:
    only the reference, without operators.

    Args:
        env: A plant.
        name: One of ``random``, ``medium``, ``mixed``, ``expert``.

    Raises:
        InputError: If the name is unknown; the message suggests the nearest one.

    Example:
        >>> import neorl_envs
        >>> found = quality(neorl_envs.make("ChemicalReactor-v0"), "medium")
        >>> list(found.controllers)
        ['PID 100/1500']
    """
    if name not in QUALITIES:
        raise unknown_name("quality", name, QUALITIES)
    return QUALITIES[name](env)
