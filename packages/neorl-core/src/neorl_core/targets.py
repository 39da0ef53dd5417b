"""Regression targets for critics, and slowly updated target networks."""

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import (
    booleans,
    checked_positive,
    checked_probability,
    floats,
    like,
    require_members,
    require_same_shape,
)
from neorl_core._internal.missing_names import missing_name
from neorl_core._internal.precision import narrow, widen

__all__ = [
    "clipped_double_td_target",
    "double_td_target",
    "ensemble_discrepancy",
    "mopo_penalty",
    "polyak",
    "regularised_td_target",
    "soft_td_target",
    "td_target",
]
globals()["__getattr__"] = missing_name(__name__, __all__)

# One-step temporal-difference targets.


def td_target(
    reward: Float[Array, "*batch"],
    next_value: Float[Array, "*batch"],
    terminated: Bool[Array, "*batch"],
    *,
    discount: float | Float[Array, ""],
) -> Float[Array, "*batch"]:
    """The one-step bootstrap ``reward + discount (1 - terminated) next_value``.

    Only a termination stops the bootstrap; a truncated step continues from the value of its own
    next observation. A next value that is not finite is ignored where ``terminated`` is true.

    Args:
        reward: Any shape.
        next_value: Value of the next observation, same shape.
        terminated: Same shape.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The target, same shape. Gradients are not stopped.

    Raises:
        ValueError: If the shapes differ, or a concrete ``discount`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> ended = jnp.array([False, True])
        >>> td_target(jnp.ones(2), jnp.full(2, 10.0), ended, discount=0.5).tolist()
        [6.0, 1.0]

    Source: Sutton and Barto, Reinforcement learning, 2nd edition, equation 6.2.
    """
    require_same_shape("reward", reward, "next_value", next_value)
    require_same_shape("reward", reward, "terminated", terminated)
    discount = checked_probability("discount", discount, closed=True)
    next_value = floats(next_value)
    follows = jnp.where(booleans(terminated), 0, next_value)
    return floats(reward) + (discount * follows).astype(follows.dtype)


def clipped_double_td_target(
    reward: Float[Array, "*batch"],
    next_values: Float[Array, "ens *batch"],
    terminated: Bool[Array, "*batch"],
    *,
    discount: float | Float[Array, ""],
) -> Float[Array, "*batch"]:
    """The bootstrap from the smallest of several value estimates.

    ``reward + discount (1 - terminated) min_i next_values[i]``.

    Args:
        reward: Any shape.
        next_values: One estimate per member along the first axis, each with the shape of
            ``reward``.
        terminated: Shape of ``reward``.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The target, with the shape of ``reward``.

    Raises:
        ValueError: If the shapes disagree, there is no member, or ``discount`` is outside [0, 1].

    Source: Fujimoto, van Hoof and Meger, Addressing function approximation error in actor-critic
    methods, arXiv 1802.09477.
    """
    require_members("next_values", next_values, "reward", reward)
    return td_target(reward, jnp.min(floats(next_values), axis=0), terminated, discount=discount)


# The TD target of double Q-learning.


def double_td_target(
    reward: Float[Array, "*batch"],
    next_online: Float[Array, "*batch choice"],
    next_target: Float[Array, "*batch choice"],
    terminated: Bool[Array, "*batch"],
    *,
    discount: float | Float[Array, ""],
) -> Float[Array, "*batch"]:
    """The bootstrap in which one network chooses the next action and another evaluates it.

    ``reward + discount (1 - terminated) next_target[argmax next_online]``.

    Args:
        reward: Any shape.
        next_online: Values of the next actions by the network being trained, along a last axis.
        next_target: Values of the same actions by the target network, same shape.
        terminated: Shape of ``reward``.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The target, with the shape of ``reward``. Gradients are not stopped, but none passes through
        the choice.

    Raises:
        ValueError: If the shapes disagree, there is no action to choose, or a concrete ``discount``
            is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> online, slow = jnp.array([1.0, 2.0]), jnp.array([9.0, 4.0])
        >>> reward, ended = jnp.array(1.0), jnp.array(False)
        >>> float(double_td_target(reward, online, slow, ended, discount=0.5))
        3.0

    Source: van Hasselt, Guez and Silver, Deep reinforcement learning with double Q-learning,
    arXiv 1509.06461.
    """
    require_same_shape("next_online", next_online, "next_target", next_target)
    online, target, reward = floats(next_online), floats(next_target), floats(reward)
    if online.ndim != reward.ndim + 1 or online.shape[-1] == 0:
        raise ValueError(
            "next_online needs the axes of reward and a last axis with at least one choice, got "
            f"{online.shape} for reward of {reward.shape}; put the choices last"
        )
    choice = jnp.argmax(online, axis=-1)[..., None]
    value = jnp.take_along_axis(target, choice, axis=-1)[..., 0]
    return td_target(reward, value, booleans(terminated), discount=discount)


# The target of soft actor-critic: the expectation over the next action.


def soft_td_target(
    reward: Float[Array, "*batch"],
    next_values: Float[Array, "ens *batch"],
    next_log_prob: Float[Array, "*batch"],
    terminated: Bool[Array, "*batch"],
    *,
    discount: float | Float[Array, ""],
    temperature: float | Float[Array, ""],
) -> Float[Array, "*batch"]:
    """The bootstrap of soft actor-critic: the smallest estimate plus the next action's entropy.

    ``reward + discount (1 - terminated) (min_i next_values[i] - temperature next_log_prob)``.

    Args:
        reward: Any shape.
        next_values: Values of an action sampled from the policy at the next observation, one
            estimate per member along the first axis: two for SAC, many for SAC-N and EDAC.
        next_log_prob: Log-density of that action, with the shape of ``reward``.
        terminated: Shape of ``reward``.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.
        temperature: Reward per nat of entropy, not negative; 0 leaves the entropy out of the
            target. NaN results under ``jit`` if it is negative.

    Returns:
        The target, with the shape of ``reward``. Gradients are not stopped.

    Raises:
        ValueError: If the shapes disagree, there is no member, a concrete ``discount`` is outside
            [0, 1] or a concrete ``temperature`` is negative.

    Example:
        >>> import jax.numpy as jnp
        >>> values, log_prob = jnp.array([[4.0], [6.0]]), jnp.array([-2.0])
        >>> soft_td_target(
        ...     jnp.ones(1), values, log_prob, jnp.array([False]), discount=0.5, temperature=1.0
        ... ).tolist()
        [4.0]

    Source: Haarnoja et al., Soft actor-critic algorithms and applications, arXiv 1812.05905,
    equations 2 and 3; the ensemble as in An et al., arXiv 2110.01548.
    """
    require_members("next_values", next_values, "reward", reward)
    require_same_shape("reward", reward, "next_log_prob", next_log_prob)
    temperature = checked_positive("temperature", temperature, or_zero=True)
    log_prob = floats(next_log_prob)
    entropy = like(temperature, log_prob) * log_prob
    soft = jnp.min(floats(next_values), axis=0) - entropy
    # Also without a bootstrap: a temperature out of range must not give a valid target.
    reward = floats(reward) + 0 * like(temperature, log_prob)
    return td_target(reward, soft, terminated, discount=discount)


# The TD target of ReBRAC, which penalises next actions that differ from the log.


def regularised_td_target(
    reward: Float[Array, "*batch"],
    next_values: Float[Array, "ens *batch"],
    next_policy_action: Float[Array, "*batch act"],
    next_logged_action: Float[Array, "*batch act"],
    terminated: Bool[Array, "*batch"],
    truncated: Bool[Array, "*batch"],
    *,
    discount: float | Float[Array, ""],
    weight: float | Float[Array, ""],
) -> Float[Array, "*batch"]:
    """The clipped double target minus a penalty for leaving the log at the next step.

    ``reward + discount (1 - terminated) (min_i next_values[i] - weight d)`` with ``d = sum_c
    (next_policy_action_c - next_logged_action_c)^2``, the sum over the action channels. At a
    ``truncated`` step the log has no next action: ``d = 0`` there, but the target still bootstraps.

    Args:
        reward: Any shape.
        next_values: One estimate per member along the first axis, each with the shape of
            ``reward``.
        next_policy_action: Next action of the target policy, in [-1, 1].
        next_logged_action: Next action of the same episode; ignored at the end of an episode.
        terminated: Shape of ``reward``.
        truncated: Shape of ``reward``.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.
        weight: Penalty weight of the squared distance, not negative; NaN results under ``jit`` if
            it is negative.

    Returns:
        The target, with the shape of ``reward``. Gradients are not stopped.

    Raises:
        ValueError: If the shapes disagree, there is no member, a concrete ``discount`` is outside
            [0, 1] or a concrete ``weight`` is negative.

    Example:
        >>> import jax.numpy as jnp
        >>> no, yes = jnp.array([False, False]), jnp.array([False, True])
        >>> policy, log = jnp.ones((2, 1)), jnp.zeros((2, 1))
        >>> regularised_td_target(
        ...     jnp.ones(2), jnp.full((2, 2), 4.0), policy, log, no, yes, discount=0.5, weight=2.0
        ... ).tolist()
        [2.0, 3.0]

    Source: Tarasov et al., Revisiting the minimalist approach to offline reinforcement learning,
    arXiv 2305.09836, equation 3.
    """
    require_same_shape(
        "next_policy_action", next_policy_action, "next_logged_action", next_logged_action
    )
    require_same_shape("reward", reward, "terminated", terminated)
    require_same_shape("reward", reward, "truncated", truncated)
    require_members("next_values", next_values, "reward", reward)
    weight = checked_positive("weight", weight, or_zero=True)
    policy, log = floats(next_policy_action), floats(next_logged_action)
    if policy.shape[:-1] != np.shape(reward) or policy.ndim == 0:
        raise ValueError(
            "the next actions need the axes of reward and a last axis of channels, got "
            f"{policy.shape} for reward of {np.shape(reward)}; "
            "give the actions of every row of reward"
        )
    boundary = (booleans(terminated) | booleans(truncated))[..., None]
    # Both sides are replaced: the values at an episode boundary may be anything, including NaN.
    distance = jnp.where(boundary, 0, policy - jnp.where(boundary, 0, log))
    penalty = like(weight, policy) * jnp.sum(jnp.square(distance), axis=-1)
    # The minimum first: its gradient compares the values again, and XLA may round equal differences
    # differently the second time, which gives NaN.
    next_value = jnp.min(floats(next_values), axis=0) - penalty
    # Also without a bootstrap: a weight out of range must not give a valid target.
    reward = jnp.where(jnp.isnan(weight), jnp.nan, floats(reward))
    return td_target(reward, next_value, booleans(terminated), discount=discount)


# Disagreement of an ensemble, by which rewards of model rollouts are penalised.


def mopo_penalty(std: Float[Array, "ens *batch channel"]) -> Float[Array, "*batch"]:
    """The uncertainty that MOPO subtracts from the reward: ``max_i ||std_i||``, the Euclidean norm.

    The reward for a step of a learned model is ``reward - weight mopo_penalty(std)``.

    Args:
        std: Standard deviations that each member predicts for the next observation and, if it is
            predicted too, for the reward; all channels in the same (standardised) unit.

    Returns:
        The penalty, not negative, without the first and the last axis.

    Raises:
        ValueError: If there is no member or no axis of channels.

    Example:
        >>> import jax.numpy as jnp
        >>> float(mopo_penalty(jnp.array([[3.0, 4.0], [1.0, 1.0]])))
        5.0

    Source: Yu et al., MOPO: model-based offline policy optimization, arXiv 2005.13239.
    """
    return jnp.max(_norm(_members("std", std, 2)), axis=0)


def ensemble_discrepancy(means: Float[Array, "ens *batch channel"]) -> Float[Array, "*batch"]:
    """The largest distance between two members' predictions: ``max_ij ||mean_i - mean_j||``.

    MOReL stops a rollout with a penalty if this exceeds a threshold; other methods subtract a
    multiple of it from the reward.

    Args:
        means: Next observations that each member predicts, with all channels in the same unit.

    Returns:
        The distance, without the first and the last axis; zero for one member.

    Raises:
        ValueError: If there is no member or no axis of channels.

    Example:
        >>> import jax.numpy as jnp
        >>> float(ensemble_discrepancy(jnp.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])))
        5.0

    Source: Kidambi et al., MOReL: model-based offline reinforcement learning, arXiv 2005.05951.
    """
    means = _members("means", means, 2)
    return jnp.max(_norm(means[:, None] - means[None, :]), axis=(0, 1))


def _members(name: str, values: Array, rank: int) -> Array:
    values = floats(values)
    if values.ndim < rank or values.shape[0] == 0:
        axes = "members and a last one of channels" if rank > 1 else "members"
        raise ValueError(
            f"{name} needs a first axis of one or more {axes}, got shape {values.shape}; "
            f"for one member add the axis with {name}[None]"
        )
    return values


def _norm(vectors: Array) -> Array:
    """The Euclidean norm along the last axis, with gradient zero at zero and no overflow."""
    dtype, wide = vectors.dtype, widen(vectors)
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(wide), axis=-1, initial=0))
    moves = largest > 0
    unit = jnp.where(moves, largest, 1)
    squares = jnp.sum(jnp.square(wide / unit[..., None]), axis=-1)
    return narrow(jnp.where(moves, unit * jnp.sqrt(jnp.where(moves, squares, 1)), 0), dtype)


# Slowly updated copies of parameters.


Tree = TypeVar("Tree")


def polyak(target: Tree, online: Tree, *, tau: float | Float[Array, ""]) -> Tree:
    """The convex step ``(1 - tau) target + tau online``, leaf by leaf.

    Args:
        target: A PyTree of floating-point arrays.
        online: Same structure and shapes.
        tau: Fraction of the way to ``online``, in [0, 1]; 1 copies ``online``, 0 keeps ``target``;
            NaN results under ``jit`` if it is outside.

    Returns:
        The new target; dtypes are those of ``target``.

    Raises:
        ValueError: If structures or shapes differ, a leaf of ``target`` is not floating, or a
            concrete ``tau`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> polyak({"w": jnp.zeros(2)}, {"w": jnp.ones(2)}, tau=0.25)["w"].tolist()
        [0.25, 0.25]

    Source: Polyak and Juditsky, Acceleration of stochastic approximation by averaging, 1992; as
    target networks in Lillicrap et al., arXiv 1509.02971.
    """
    tau = checked_probability("tau", tau, closed=True)
    if jax.tree.structure(target) != jax.tree.structure(online):
        raise ValueError(
            f"target and online must have one structure; {_apart(target, online)}; give the "
            "parameters of one network"
        )

    def towards(old: Array, new: Array) -> Array:
        if not jnp.issubdtype(old.dtype, jnp.floating):
            raise ValueError(
                f"target must be floating point, got a leaf of type {old.dtype}; leave counters "
                "and keys out"
            )
        require_same_shape("a leaf of target", old, "its leaf of online", new)
        return ((1 - tau) * old + tau * new).astype(old.dtype)

    return jax.tree.map(towards, target, online)


def _apart(target: Tree, online: Tree) -> str:
    """Describes a leaf that only one of two trees has, or the types that differ."""
    leaves = [
        {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)}
        for tree in (target, online)
    ]
    for name, only in (("target", leaves[0] - leaves[1]), ("online", leaves[1] - leaves[0])):
        if only:
            return f"only {name} has the leaf {min(only)}"
    return f"they are of types {type(target).__name__} and {type(online).__name__}"
