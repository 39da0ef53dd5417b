"""Paired episodes in the simulator, with one compiled program per kind of policy."""

import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from neorl_core import Environment, Policy
from neorl_envs import closed_loop
from neorl_envs.closed_loop import LoopStep, Start
from neorl_safety.filters import SafetyReport, empty_report

_OF_STARTS, _OF_CURVES = 0x57A7, 2**31 + 1  # the latter is larger than the number of any start


def starts_key(seed: int) -> PRNGKeyArray:
    """The key of the starts of an evaluation, used for no other purpose with this seed."""
    return jax.random.fold_in(jax.random.key(seed), _OF_STARTS)


def curve_key(seed: int) -> PRNGKeyArray:
    """The key of the starts on which policies are evaluated during training."""
    return jax.random.fold_in(starts_key(seed), _OF_CURVES)


class Rollout(NamedTuple):
    """Rows of one episode, padded to the horizon; a leading axis holds several episodes.

    Row ``t`` is the transition that starts at time ``t dt``. Rows where ``mask`` is false follow
    the end of the episode; the last transition, terminal or not, is counted.

    Attributes:
        first_obs: Initial observation, shape ``(obs,)``.
        obs: Observation after each transition, shape ``(time, obs)``.
        action: Action that the policy (or its guard) requested, shape ``(time, act)``.
        applied: Action after the plant's own limits, shape ``(time, act)``.
        reward: Reward of each transition, shape ``(time,)``.
        cost: Costs of each transition, shape ``(time, cost)``.
        terminated: Whether the plant ended the episode in this row, shape ``(time,)``.
        success: Whether it ended successfully, shape ``(time,)``; if the environment's ``info`` has
            no field ``success``, this means reaching the time limit.
        mask: Whether the transition belongs to the episode, shape ``(time,)``.
        flags: Decisions of the guard, bits of ``neorl_safety.filters.Flag``, shape ``(time,)``.
        intervention: Change that the guard made to each channel, shape ``(time, act)``.
        limits: Active limits of each channel, bits of ``neorl_safety.filters.Limit``.
        alarms: Monitors of the guard that raise an alarm, one bit each, shape ``(time,)``.
        terms: Terms of the reward, shape ``(time, term)``.
    """

    first_obs: Float[Array, "*start obs"]
    obs: Float[Array, "*start time obs"]
    action: Float[Array, "*start time act"]
    applied: Float[Array, "*start time act"]
    reward: Float[Array, "*start time"]
    cost: Float[Array, "*start time cost"]
    terminated: Bool[Array, "*start time"]
    success: Bool[Array, "*start time"]
    mask: Bool[Array, "*start time"]
    flags: UInt32[Array, "*start time"]
    intervention: Float[Array, "*start time act"]
    limits: UInt32[Array, "*start time act"]
    alarms: UInt32[Array, "*start time"]
    terms: Float[Array, "*start time term"]


def rollouts(
    environment: Environment, policy: Policy, key: PRNGKeyArray, indices: Int[Array, " start"]
) -> Rollout:
    """Runs episodes of a policy from given starts, paired with those of every other policy.

    Plant parameters, initial state, disturbances and measurement noise of start ``i`` are functions
    of ``(key, i)`` only, so every policy gets the same ones: common random numbers. After each
    step, ``sent`` passes the action that the plant received to the policy.

    Args:
        environment: A PyTree with ``sample_params(key)``.
        policy: Policy in physical units, guarded or not, with array leaves.
        key: Key of the complete set of starts.
        indices: Numbers of the starts.

    Returns:
        The rows of every start, padded to the horizon of the specification. One program is
        compiled for each kind of policy and number of starts.
    """
    return _run_episodes(environment, policy, paired_starts(environment, key, indices))


def rollouts_in_chunks(
    environment: Environment,
    policy: Policy,
    key: PRNGKeyArray,
    indices: Int[np.ndarray, " start"],
    *,
    at_once: int,
) -> Iterator[Rollout]:
    """As :func:`rollouts`, for a limited number of starts at a time, returned on the host.

    Chunks of equal size, the last one padded, limit the memory and need only one program.
    """
    for begin in range(0, len(indices), at_once):
        chunk = indices[begin : begin + at_once]
        # Repeat the chunk's own starts to fill it, because another size would need another program.
        padded = jnp.asarray(np.resize(chunk, at_once))
        rows = jax.device_get(rollouts(environment, policy, key, padded))
        yield jax.tree.map(operator.itemgetter(slice(len(chunk))), rows)


@jax.jit
def paired_starts(
    environment: Environment, key: PRNGKeyArray, indices: Int[Array, " start"]
) -> Start:
    """The starts with the given numbers, along a leading axis."""
    return jax.vmap(_start, in_axes=(None, None, 0))(environment, key, indices)


def _start(environment: Any, key: PRNGKeyArray, index: Int[Array, ""]) -> Start:
    plant, reset, noise, acting = jax.random.split(jax.random.fold_in(key, index), 4)
    params = environment.sample_params(plant)
    state, obs = environment.reset(params, reset)
    horizon = environment.spec.horizon
    return Start(
        params, state, obs, jax.random.split(noise, horizon), jax.random.split(acting, horizon)
    )


@jax.jit
def _run_episodes(environment: Environment, policy: Policy, starts: Start) -> Rollout:
    return jax.vmap(_episode, in_axes=(None, None, 0))(environment, policy, starts)


def _episode(environment: Environment, policy: Policy, start: Start) -> Rollout:
    episode = closed_loop.rollout(environment, policy, start, record=_row, hold=True)
    return Rollout(first_obs=start.obs, mask=episode.mask, **episode.rows)


def _row(loop_step: LoopStep) -> dict[str, Array]:
    step, report = loop_step.step, report_of(loop_step.carry, loop_step.action)
    return dict(
        obs=step.final_obs,
        action=loop_step.action,
        applied=step.applied,
        reward=step.reward,
        cost=step.cost,
        terminated=step.terminated,
        success=jnp.asarray(getattr(step.info, "success", step.truncated), jnp.bool_),
        flags=report.flags,
        intervention=report.intervention,
        limits=report.limits,
        alarms=report.alarms,
        terms=getattr(step.info, "terms", jnp.zeros(0, step.reward.dtype)),
    )


def report_of(carry: Any, action: Float[Array, " act"]) -> SafetyReport:
    """Report of a guard on the last step; empty if the carry does not belong to a guard."""
    return carry.report if is_guarded(carry) else empty_report(action.shape[0], action.dtype)


def is_guarded(carry: Any) -> bool:
    """Whether a carry belongs to a guard: it contains a report."""
    return isinstance(getattr(carry, "report", None), SafetyReport)
