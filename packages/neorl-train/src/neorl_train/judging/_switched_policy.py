"""Wraps policies of different kinds as one kind, so that the plant is compiled only once."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_core import Policy, as_arrays
from neorl_safety.filters import SafetyReport, empty_report


class SwitchedCarry(NamedTuple):
    """Carry of a :class:`SwitchedPolicy`.

    Attributes:
        members: Carry of every member; only that of the selected one changes.
        report: Report of the selected member's guard; empty if it has none.
    """

    members: tuple[Any, ...]
    report: SafetyReport


class SwitchedPolicy(eqx.Module):
    """A fixed list of policies of different kinds, of which an index selects the one that acts.

    The other members only define shapes for the compiler: they are not executed, unless the index
    itself is batched.

    Attributes:
        members: One policy of every kind.
        chosen: Index of the one that acts, scalar.
        n_action: Number of action channels.
    """

    members: tuple[Any, ...]
    chosen: Int[Array, ""]
    n_action: int = eqx.field(static=True)

    def initial_carry(self) -> SwitchedCarry:
        """Fresh carries of all members."""
        carries = tuple(member.initial_carry() for member in self.members)
        return SwitchedCarry(carries, empty_report(self.n_action))

    def __call__(
        self, carry: SwitchedCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[SwitchedCarry, Float[Array, " act"]]:
        """Runs one step of the selected member."""
        branches = [functools.partial(_act, kind) for kind in range(len(self.members))]
        return jax.lax.switch(self.chosen, branches, self.members, carry, obs, key)

    def sent(self, carry: SwitchedCarry, action: Float[Array, " act"]) -> SwitchedCarry:
        """Passes the received action to the selected member."""
        branches = [functools.partial(_sent, kind) for kind in range(len(self.members))]
        return jax.lax.switch(self.chosen, branches, self.members, carry, action)


def _act(
    kind: int, members: tuple[Any, ...], carry: SwitchedCarry, obs: Array, key: PRNGKeyArray
) -> tuple[SwitchedCarry, Array]:
    member_carry, action = members[kind](carry.members[kind], obs, key)
    report = getattr(member_carry, "report", None)
    if not isinstance(report, SafetyReport):
        report = empty_report(action.shape[0])
    return SwitchedCarry(_replace(carry.members, kind, member_carry), report), action


def _sent(
    kind: int, members: tuple[Any, ...], carry: SwitchedCarry, action: Array
) -> SwitchedCarry:
    member_carry = members[kind].sent(carry.members[kind], action)
    return carry._replace(members=_replace(carry.members, kind, member_carry))


def _replace(entries: tuple[Any, ...], position: int, entry: Any) -> tuple[Any, ...]:
    return (*entries[:position], entry, *entries[position + 1 :])


def with_one_structure(policies: Sequence[Policy], n_action: int) -> list[SwitchedPolicy]:
    """Wraps policies so that all of them run in one compiled program.

    Args:
        policies: Policies of any kinds; a kind is a tree structure with the shapes of its leaves.
        n_action: Number of action channels.

    Returns:
        One wrapper for each policy, in order, all with the same structure.
    """
    arrays = [as_arrays(policy) for policy in policies]
    kinds: dict[Any, int] = {}
    for policy in arrays:
        kinds.setdefault(_structure_of(policy), len(kinds))
    members = [
        next(p for p in arrays if kinds[_structure_of(p)] == kind) for kind in kinds.values()
    ]
    wrapped = []
    for policy in arrays:
        kind = kinds[_structure_of(policy)]
        chosen = jnp.asarray(kind, jnp.int32)
        wrapped.append(SwitchedPolicy(_replace(tuple(members), kind, policy), chosen, n_action))
    return wrapped


def _structure_of(policy: Any) -> tuple[Any, ...]:
    leaves, structure = jax.tree.flatten(policy)
    return structure, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
