"""The mean action of several policies, such as the seeds of one learner."""

import dataclasses
from collections.abc import Sequence
from functools import reduce
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.networks import largest
from neorl_agents.policies._network_policy import (
    CategoricalPolicy,
    EpsilonGreedyPolicy,
    GaussianPolicy,
    SquashedGaussianPolicy,
)
from neorl_core import InputError, Policy
from neorl_core.control import follow

DRAWN = (CategoricalPolicy, EpsilonGreedyPolicy, GaussianPolicy, SquashedGaussianPolicy)


class AveragePolicy(eqx.Module):
    """``action = mean_i member_i(obs)``, the average of several policies for one plant.

    Every member keeps a memory of its own, and the action that the plant received is reported to
    all of them. An average can be exported in every form in which its members can. If the action of
    one member is not finite, neither is the mean. :func:`average_policy` checks the members.

    Attributes:
        members: The policies, in physical units; at least two.

    Source: Breiman, Bagging predictors, Machine Learning 24 (1996), for the average of predictors
    that were fitted to the same data.
    """

    members: tuple[Policy, ...]

    def initial_carry(self) -> tuple[Any, ...]:
        """The initial carry of every member."""
        return tuple(member.initial_carry() for member in self.members)

    def __call__(
        self, carry: tuple[Any, ...], obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[tuple[Any, ...], Float[Array, " act"]]:
        """The mean action for one observation, both in physical units; the key is ignored."""
        answers = [member(own, obs, None) for member, own in zip(self.members, carry, strict=True)]
        actions = [action for _, action in answers]
        mean = reduce(jnp.add, actions) / len(actions)
        # A mean can leave the range of its terms, and hence the box, by a rounding error.
        low, high = reduce(jnp.minimum, actions), reduce(jnp.maximum, actions)
        return tuple(own for own, _ in answers), jnp.clip(mean, low, high)

    def sent(self, carry: tuple[Any, ...], action: Float[Array, " act"]) -> tuple[Any, ...]:
        """Reports the applied action to every member."""
        pairs = zip(self.members, carry, strict=True)
        return tuple(member.sent(own, action) for member, own in pairs)

    def follow(self, carry: tuple[Any, ...], action: Float[Array, " act"]) -> tuple[Any, ...]:
        """Reports another controller's action to every member."""
        pairs = zip(self.members, carry, strict=True)
        return tuple(follow(member, own, action) for member, own in pairs)


def average_policy(members: Sequence[Policy]) -> AveragePolicy:
    """The average of several policies whose actions are numbers that may be averaged.

    Args:
        members: Deterministic policies in physical units for the same plant.

    Returns:
        Their average.

    Raises:
        InputError: If there are fewer than two, or one draws its actions at random or chooses one
            of several channels: the mean of two choices is neither of them.

    Example:
        >>> from neorl_core.control import ConstantPolicy
        >>> average = average_policy([ConstantPolicy(jnp.ones(1)), ConstantPolicy(4 * jnp.ones(1))])
        >>> average(average.initial_carry(), jnp.zeros(3))[1]
        Array([2.5], dtype=float32)
    """
    if len(members) < 2:
        raise InputError(f"an average needs at least two policies, got {len(members)}")
    for member in members:
        kind = type(member).__name__
        if isinstance(member, DRAWN):
            raise InputError(
                f"{kind} draws its actions, which cannot be averaged; take the deterministic "
                "policies of the learner"
            )
        if _chooses(member):
            raise InputError(
                f"this {kind} chooses one of several channels, and the mean of two choices is "
                "neither of them; take one of the policies"
            )
    return AveragePolicy(tuple(members))


def _chooses(part: Any) -> bool:
    """Whether a network in a policy selects the largest of its outputs."""
    if part is largest:
        return True
    if isinstance(part, tuple):
        return any(map(_chooses, part))
    if dataclasses.is_dataclass(part):
        return any(_chooses(getattr(part, field.name)) for field in dataclasses.fields(part))
    return False
