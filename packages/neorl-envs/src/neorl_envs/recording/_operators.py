"""Interventions of operators in a running loop: setpoint steps, manual holds, test signals.

A log recorded under a single, undisturbed controller contains no information beyond that
controller. This module adds the variation that makes a plant log informative, as pure functions of
(plan, state, key).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray


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


def in_manual(plan: OperatorPlan, state: OperatorState) -> Bool[Array, " act"]:
    """Which manipulated variables the operators hold."""
    return (jnp.arange(plan.amplitude.shape[0]) == state.channel) & (state.left > 0)


def moved_setpoint(
    plan: OperatorPlan, state: OperatorState, setpoint: Float[Array, " loop"]
) -> Float[Array, " loop"]:
    """The setpoints of a controller after the operators' steps, clipped to the upper limits."""
    requested = setpoint + state.offset * plan.setpoint_step
    return jnp.minimum(requested, jnp.maximum(plan.setpoint_high, setpoint))
