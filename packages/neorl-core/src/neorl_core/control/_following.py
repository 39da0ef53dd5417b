"""Informing a policy that another controller acted."""

from typing import Any, TypeVar

from jaxtyping import Array, Float

from neorl_core._vocabulary.protocols import Policy

Carry = TypeVar("Carry")


def follow(policy: Policy, carry: Carry, action: Float[Array, " act"]) -> Carry:
    """Updates a policy's carry after the plant received an action that another controller chose.

    Calls the policy's own ``follow(carry, action)`` if it has one, as :class:`PID` does, and
    ``sent`` otherwise. Call it in place of ``sent`` once per step while another controller or an
    operator is in charge, so that the policy takes over without a bump.

    Args:
        policy: The policy that was not in charge.
        carry: Carry of that policy.
        action: Action that the plant received; NaN if unknown.

    Returns:
        The carry for its next step.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_core.control import ConstantPolicy
        >>> follow(ConstantPolicy(jnp.ones(1)), (), jnp.zeros(1))
        ()
    """
    follow_action: Any = getattr(policy, "follow", policy.sent)
    return follow_action(carry, action)
