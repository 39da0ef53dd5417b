"""Telling a policy that another one acted."""

from typing import Any, TypeVar

from jaxtyping import Array, Float

from neorl_core._vocabulary.protocols import Policy

Carry = TypeVar("Carry")


def follow(policy: Policy, carry: Carry, action: Float[Array, " act"]) -> Carry:
    """Updates a policy's carry after the plant received an action that another controller chose.

    Its own ``follow(carry, action)`` where it has one, as :class:`PID` does, else ``sent``. To be
    called in place of ``sent`` once a step while another controller or a person is in charge, so
    that the policy takes over without a bump.

    Args:
        policy: The policy that was not in charge.
        carry: What it remembers.
        action: What the plant received, NaN where that is not known.

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
