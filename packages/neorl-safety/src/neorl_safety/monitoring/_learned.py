"""Monitors based on learned models, and on policies that were trained in the same way."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_core import InputError, Policy, Spec, as_arrays, highs, lows
from neorl_safety.monitoring._monitor import MonitorInput, Score, score_of

# Monitors based on learned models: an ensemble's disagreement, a safety critic's value.


Apply = Callable[[Any, Array, Array], Array]


class CriticMonitor(eqx.Module):
    """The value that a safety critic assigns to the action that the policy proposes.

    Attributes:
        critic: Parameters of the critic.
        threshold: Value above which it alarms, scalar.
        apply: Function ``apply(critic, obs, action)``, larger for worse; module-level and static.
    """

    critic: Any
    threshold: Float[Array, ""]
    apply: Apply = eqx.field(static=True)

    def initial_carry(self) -> tuple[()]:
        """An empty carry: the monitor has no memory."""
        return ()

    def __call__(self, carry: tuple[()], inputs: MonitorInput) -> tuple[tuple[()], Score]:
        """The critic's value; infinite where it is NaN."""
        return carry, score_of(self.apply(self.critic, inputs.obs, inputs.action), self.threshold)


class EnsembleMonitor(eqx.Module):
    """The standard deviation of the outputs of an ensemble.

    Attributes:
        members: Parameters with a leading axis of members.
        threshold: Value above which it alarms, scalar.
        apply: ``apply(member, obs, action)``, which returns a scalar or a vector; static.
    """

    members: Any
    threshold: Float[Array, ""]
    apply: Apply = eqx.field(static=True)

    def initial_carry(self) -> tuple[()]:
        """An empty carry: the monitor has no memory."""
        return ()

    def __call__(self, carry: tuple[()], inputs: MonitorInput) -> tuple[tuple[()], Score]:
        """The largest standard deviation over the members, among all outputs."""
        predictions = jax.vmap(self.apply, in_axes=(0, None, None))(
            self.members, inputs.obs, inputs.action
        )
        return carry, score_of(jnp.max(jnp.std(predictions, axis=0)), self.threshold)


# Disagreement of policies that were trained in the same way, as a monitor.


class Proposer(NamedTuple):
    """One policy and the ranges of its actuators.

    Attributes:
        policy: A policy without memory.
        span: Range of every actuator, shape ``(act,)``.
    """

    policy: Any
    span: Float[Array, " act"]


def policy_ensemble(
    policies: Sequence[Policy], spec: Spec, threshold: Float[Array, ""] | None = None
) -> EnsembleMonitor:
    """Monitors how far policies of one kind disagree, such as several seeds of one learner.

    The score is the largest standard deviation of the members' proposals, as a fraction of the
    actuator range. The members agree where the log had data; where they do not, nothing was
    learned.

    Args:
        policies: At least two policies of one structure, deterministic and without memory.
        spec: Specification that provides the ranges of the actuators.
        threshold: Value above which it alarms; infinite by default, to be calibrated.

    Returns:
        The monitor, for :func:`calibrate`.

    Raises:
        InputError: If there are fewer than two, they differ in structure, or one has a memory.
    """
    arrays = [as_arrays(policy) for policy in policies]
    if len(arrays) < 2:
        raise InputError(f"disagreement needs at least two policies, got {len(arrays)}")
    structures = {_structure(policy) for policy in arrays}
    if len(structures) > 1:
        raise InputError(
            "disagreement needs policies of the same structure; give seeds of one learner"
        )
    if jax.tree.leaves(arrays[0].initial_carry()):
        raise InputError("disagreement needs policies without memory, but these have a carry")
    span = np.asarray(highs(spec.action), np.float32) - np.asarray(lows(spec.action), np.float32)
    members = [Proposer(policy, jnp.asarray(span)) for policy in arrays]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
    alarm_threshold = jnp.asarray(jnp.inf, jnp.float32) if threshold is None else threshold
    return EnsembleMonitor(stacked, alarm_threshold, relative_proposal)


def relative_proposal(
    member: Proposer, obs: Float[Array, " obs"], action: Float[Array, " act"]
) -> Float[Array, " act"]:
    """Proposal of a member, as a fraction of the actuator range."""
    del action
    _, proposal = member.policy(member.policy.initial_carry(), obs, None)
    return proposal / member.span


def _structure(policy: Any) -> Any:
    leaves, structure = jax.tree.flatten(policy)
    return structure, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
