"""Episodes in the simulator on common starts, as one compiled program per kind of policy."""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from neorl_core import Environment, Policy
from neorl_safety import SafetyReport, empty_report

Tree = TypeVar("Tree")


class Rollout(NamedTuple):
    """Rows of one episode, padded to the horizon; with a leading axis, of many.

    Row ``t`` is the transition that starts at time ``t dt``. Rows where ``mask`` is false lie
    after the end of the episode; that of the last transition, terminal or not, is counted.

    Attributes:
        first_obs: Observation of the start, shape ``(obs,)``.
        obs: Observation that each transition reached, shape ``(time, obs)``.
        action: Action that the policy (or its guard) asked for, shape ``(time, act)``.
        applied: Action after the plant's own limits, shape ``(time, act)``.
        reward: Shape ``(time,)``.
        cost: Shape ``(time, cost)``.
        terminated: The plant ended the episode here, shape ``(time,)``.
        success: It ended as the plant wants it to, shape ``(time,)``: by the clock, where the
            environment's ``info`` has no field ``success``.
        mask: The transition belongs to the episode, shape ``(time,)``.
        flags: Decisions of the guard, bits of ``neorl_safety.Flag``, shape ``(time,)``.
        intervention: Change the guard made to each channel, shape ``(time, act)``.
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


class _Episode(NamedTuple):
    environment: Any
    policy: Any
    params: Any
    noise_key: PRNGKeyArray
    policy_key: PRNGKeyArray
    state: Any
    carry: Any
    obs: Float[Array, " obs"]
    alive: Bool[Array, ""]


def episode(
    environment: Environment, policy: Policy, key: PRNGKeyArray, index: Int[Array, ""]
) -> Rollout:
    """One episode of a policy on one common start.

    Plant parameters, initial state, disturbances and measurement noise are functions of
    ``(key, index)`` alone, so every policy meets the same ones: common random numbers. The
    policy is told by ``sent`` what the plant received.

    Args:
        environment: With ``sample_params(key)``; a PyTree.
        policy: In physical units; guarded or not.
        key: Of the whole set of starts.
        index: Number of the start.

    Returns:
        The rows, padded to the horizon of the specification.
    """
    plant, reset, noise, acting = jax.random.split(jax.random.fold_in(key, index), 4)
    params = environment.sample_params(plant)  # pyright: ignore[reportAttributeAccessIssue]
    state, obs = environment.reset(params, reset)
    start = _Episode(
        environment,
        policy,
        params,
        noise,
        acting,
        state,
        policy.initial_carry(),
        obs,
        jnp.array(True),
    )
    _, rows = jax.lax.scan(_step, start, jnp.arange(environment.spec.horizon))
    return Rollout(obs, *rows)


def _step(now: _Episode, time: Int[Array, ""]) -> tuple[_Episode, tuple]:
    carry, action = now.policy(now.carry, now.obs, jax.random.fold_in(now.policy_key, time))
    report = _report(carry, action)
    noise = jax.random.fold_in(now.noise_key, time)
    state, step = now.environment.step(now.params, now.state, action, noise)
    carry = now.policy.sent(carry, step.applied)
    success = jnp.asarray(getattr(step.info, "success", step.truncated), jnp.bool_)
    rows = (
        step.final_obs,
        action,
        step.applied,
        step.reward,
        step.cost,
        step.terminated,
        success,
        now.alive,
        report.flags,
        report.intervention,
    )
    after = now._replace(
        state=_where(now.alive, state, now.state),
        carry=_where(now.alive, carry, now.carry),
        obs=_where(now.alive, step.obs, now.obs),
        alive=now.alive & ~(step.terminated | step.truncated),
    )
    return after, rows


def _report(carry: Any, action: Float[Array, " act"]) -> SafetyReport:
    report = getattr(carry, "report", None)
    if isinstance(report, SafetyReport):
        return report
    return empty_report(action.shape[0], action.dtype)


def _where(keep: Bool[Array, ""], new: Tree, old: Tree) -> Tree:
    return jax.tree.map(lambda a, b: jnp.where(keep, a, b), new, old)


@jax.jit
def rollouts(
    environment: Environment, policy: Policy, key: PRNGKeyArray, indices: Int[Array, " start"]
) -> Rollout:
    """:func:`episode` on many starts. One program per kind of policy and number of starts."""
    return jax.vmap(episode, in_axes=(None, None, None, 0))(environment, policy, key, indices)
