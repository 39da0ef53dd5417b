"""An ordered chain of fallbacks: the first one that can act does so."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_core import InputError, Policy
from neorl_core.control import follow


class ChainCarry(NamedTuple):
    """Carry of a :class:`FallbackChain`.

    Attributes:
        members: Carry of every member.
        acted: Index of the member that acted last.
    """

    members: tuple[Any, ...]
    acted: Int[Array, ""]


class FallbackChain(eqx.Module):
    """Several fallbacks in order, which together are a policy; see :func:`fallback_chain`.

    Attributes:
        members: The fallbacks in order of preference.
    """

    members: tuple[Any, ...]

    def initial_carry(self) -> ChainCarry:
        """Initial carries of all members."""
        carries = tuple(member.initial_carry() for member in self.members)
        return ChainCarry(carries, jnp.zeros((), jnp.int32))

    def __call__(
        self, carry: ChainCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[ChainCarry, Float[Array, " act"]]:
        """Runs every member; the first whose action is finite on all channels acts.

        If there is none, the last one acts; a guard holds the channels that are not finite.
        """
        carries, actions = [], []
        for member, member_carry in zip(self.members, carry.members, strict=True):
            new, action = member(member_carry, obs, None)
            carries.append(new)
            actions.append(action)
        can_act = jnp.stack([jnp.all(jnp.isfinite(action)) for action in actions])
        # `argmax` finds the first that can act, and also 0 where none can.
        acted = jnp.where(jnp.any(can_act), jnp.argmax(can_act), len(actions) - 1).astype(jnp.int32)
        return ChainCarry(tuple(carries), acted), jnp.stack(actions)[acted]

    def sent(self, carry: ChainCarry, action: Float[Array, " act"]) -> ChainCarry:
        """Reports the applied action to the member that acted; the other members track it."""
        carries = []
        for index, (member, member_carry) in enumerate(
            zip(self.members, carry.members, strict=True)
        ):
            acted = carry.acted == index
            pair = member.sent(member_carry, action), follow(member, member_carry, action)
            carries.append(jax.tree.map(lambda a, b, acted=acted: jnp.where(acted, a, b), *pair))
        return carry._replace(members=tuple(carries))

    def follow(self, carry: ChainCarry, action: Float[Array, " act"]) -> ChainCarry:
        """Reports to all members the action that another controller applied."""
        pairs = zip(self.members, carry.members, strict=True)
        return carry._replace(
            members=tuple(follow(m, member_carry, action) for m, member_carry in pairs)
        )


def fallback_chain(*fallbacks: Policy) -> FallbackChain:
    """Combines fallbacks in order: each takes over if none before it gives a finite action.

    So a PID that lost a measurement hands over to one that does not need it, and that one to a
    constant action. The whole action changes hands, since half the action of one controller and
    half that of another is not a control law.

    Args:
        fallbacks: Deterministic policies for the same channels, in order of preference.

    Returns:
        The chain, which is a policy.

    Raises:
        InputError: If there is no fallback.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_core.control import ConstantPolicy
        >>> from neorl_safety.guards import fallback_chain
        >>> lost, safe = ConstantPolicy(jnp.array([jnp.nan])), ConstantPolicy(jnp.array([40.0]))
        >>> chain = fallback_chain(lost, safe)
        >>> chain(chain.initial_carry(), jnp.ones(1))[1].tolist()
        [40.0]
    """
    if not fallbacks:
        raise InputError("a chain of fallbacks needs at least one fallback, got none")
    return FallbackChain(tuple(fallbacks))
