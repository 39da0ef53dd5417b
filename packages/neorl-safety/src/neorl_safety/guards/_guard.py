"""A policy behind its constraints, with a fallback that is always ready to take over."""

import math
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Policy
from neorl_core.control import follow
from neorl_safety.constraints._constraints import AnyConstraints, Constraints, as_constraints
from neorl_safety.filters._context import Context
from neorl_safety.filters._filter import filter_action
from neorl_safety.filters._report import Flag, SafetyReport, empty_report

Tree = TypeVar("Tree")


class GuardCarry(NamedTuple):
    """What a guarded policy remembers between steps.

    Attributes:
        policy: Carry of the guarded policy.
        fallback: Carry of the fallback policy.
        previous: The action that the plant received last, shape ``(act,)``; NaN before the first
            step and where ``sent`` was told so.
        report: What the filter did in the last step.
    """

    policy: Any
    fallback: Any
    previous: Float[Array, " act"]
    report: SafetyReport


class GuardedPolicy(eqx.Module):
    """A policy, its fallback and the filter between them and the plant; itself a policy.

    Attributes:
        policy: The guarded policy.
        constraints: Hard constraints of the action, in physical units.
        fallback: A deterministic policy that takes over where the guarded one cannot act.
        dt: Control period in seconds, scalar.
    """

    policy: Any
    constraints: Constraints
    fallback: Any
    dt: Float[Array, ""]

    def initial_carry(self) -> GuardCarry:
        """Fresh carries, no previous action, an empty report."""
        n_action, dtype = self.constraints.n_action, self.constraints.dtype
        return GuardCarry(
            policy=self.policy.initial_carry(),
            fallback=self.fallback.initial_carry(),
            previous=jnp.full((n_action,), jnp.nan, dtype),
            report=empty_report(n_action, dtype),
        )

    def __call__(
        self, carry: GuardCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[GuardCarry, Float[Array, " act"]]:
        """One step of policy, fallback and filter.

        Args:
            carry: Carry from :meth:`initial_carry`, the last step or :meth:`sent`.
            obs: One observation in physical units.
            key: Passed to the guarded policy; the fallback gets none.

        Returns:
            The new carry, with the report of this step, and an action that satisfies the
            constraints as :func:`filter_action` states.

        Raises:
            ValueError: If ``obs`` is not of rank one, or policy and fallback do not give one
                action for each constrained channel.
        """
        if obs.ndim != 1:
            raise ValueError(f"a guard sees one observation of rank 1, got shape {obs.shape}")
        policy_carry, proposed = self.policy(carry.policy, obs, key)
        fallback_carry, fallback_action = self.fallback(carry.fallback, obs, None)
        context = Context(obs, carry.previous, self.dt, fallback_action)
        applied, report = filter_action(self.constraints, context, proposed)
        return (
            GuardCarry(
                policy=_keep_finite(policy_carry, carry.policy),
                fallback=_keep_finite(fallback_carry, carry.fallback),
                previous=applied.astype(carry.previous.dtype),
                report=report,
            ),
            applied,
        )

    def sent(self, carry: GuardCarry, action: Float[Array, " act"]) -> GuardCarry:
        """Tells policy and fallback what the plant received; NaN where that is not known.

        The one of them that acted in the last step hears of what became of its proposal, the
        other one follows.
        """
        taken_over = (carry.report.flags & Flag.FALLBACK_USED) != 0
        return carry._replace(
            policy=_told(self.policy, carry.policy, action, ~taken_over),
            fallback=_told(self.fallback, carry.fallback, action, taken_over),
            previous=action.astype(carry.previous.dtype),
        )

    def follow(self, carry: GuardCarry, action: Float[Array, " act"]) -> GuardCarry:
        """Tells policy and fallback what the plant received from somebody else."""
        nobody = jnp.zeros((), jnp.bool_)
        return carry._replace(
            policy=_told(self.policy, carry.policy, action, nobody),
            fallback=_told(self.fallback, carry.fallback, action, nobody),
            previous=action.astype(carry.previous.dtype),
        )


def guard(
    policy: Policy, constraints: AnyConstraints, fallback: Policy, dt: float | Array
) -> GuardedPolicy:
    """Puts a policy behind its constraints, with a fallback ready to take over without a bump.

    Every step runs both policies and filters the proposal; :func:`filter_action` states what
    holds of the result. A non-finite observation or proposal hands over to the fallback in the
    same step. While the policy acts the fallback follows what was really sent, so a PID goes on
    from there when it takes over. No entry of either carry ever turns from a finite number
    into a non-finite one: such an entry keeps its last value, so one bad observation does not
    poison an integrator or a recurrent state.

    Args:
        policy: Any policy in physical units.
        constraints: Constraints for the same action channels: from
            :func:`~neorl_safety.constraints.action_constraints`, or with further kinds.
        fallback: A deterministic policy for the same channels: usually the PID in use.
        dt: Control period in seconds (``spec.dt``).

    Returns:
        The guarded policy. Batches are a ``vmap`` outside, ``guard`` inside it.

    Raises:
        ValueError: If ``dt`` is a concrete number that is not finite and positive.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_core import Channel, Spec
        >>> from neorl_core.control import ConstantPolicy
        >>> from neorl_safety.constraints import action_constraints
        >>> from neorl_safety.guards import guard
        >>> valve = Channel("valve", "%", 0.0, 100.0)
        >>> spec = Spec((Channel("level", "m", 0.0, 2.0),), (valve,), (), dt=60.0, horizon=100)
        >>> wild, calm = ConstantPolicy(jnp.array([jnp.nan])), ConstantPolicy(jnp.array([40.0]))
        >>> safe = guard(wild, action_constraints(spec), calm, spec.dt)
        >>> carry, action = safe(safe.initial_carry(), jnp.ones(1))
        >>> action.tolist()
        [40.0]
    """
    if not isinstance(dt, Tracer) and not (math.isfinite(dt) and dt > 0):
        raise ValueError(f"dt must be a positive number of seconds, got {dt}")
    every = as_constraints(constraints)
    return GuardedPolicy(policy, every, fallback, jnp.asarray(dt, every.dtype))


def _told(policy: Policy, carry: Tree, action: Array, acted: Bool[Array, ""]) -> Tree:
    own, other = policy.sent(carry, action), follow(policy, carry, action)
    return _keep_finite(jax.tree.map(lambda a, b: jnp.where(acted, a, b), own, other), carry)


def _keep_finite(new: Tree, old: Tree) -> Tree:
    """``new``, but with the old value wherever a finite number became a non-finite one."""
    return jax.tree.map(_keep_finite_leaf, new, old)


def _keep_finite_leaf(new: Array, old: Array) -> Array:
    if not jnp.issubdtype(jnp.result_type(new), jnp.inexact):
        return new
    return jnp.where(jnp.isfinite(old) & ~jnp.isfinite(new), old, new)
