"""Policies that are an affine map of the observation, or that have nothing to learn."""

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core._internal.checks import (
    floats,
    is_concrete,
    require_each,
    require_order,
    require_rank,
    require_same_shape,
)
from neorl_core._internal.precision import narrow, product, widen
from neorl_core._vocabulary.channels import Channel, Spec
from neorl_core._vocabulary.protocols import Policy
from neorl_core.control._tunables import Entry, Tunable

# Policies that are an affine map of the observation.


MANY_ENTRIES = 16
"""Larger gains are tuned in groups of entries of equal size."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StateFeedback:
    """Affine state feedback ``u = clip(bias - gain (obs - setpoint), low, high)``.

    Attributes:
        gain: Feedback gain as given by a linear-quadratic design, shape ``(act, obs)``.
        setpoint: Observation at which the plant is to be held, shape ``(obs,)``.
        bias: Action that holds the plant at the setpoint, shape ``(act,)``.
        low: Lower limits of the action, shape ``(act,)``.
        high: Upper limits, not below ``low``, shape ``(act,)``; under ``jit`` the action is NaN if
            one is.
    """

    gain: Float[Array, "act obs"]
    setpoint: Float[Array, " obs"]
    bias: Float[Array, " act"]
    low: Float[Array, " act"]
    high: Float[Array, " act"]

    def initial_carry(self) -> tuple[()]:
        """An empty carry: the policy has no memory."""
        return ()

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[Any, Float[Array, " act"]]:
        """The action for one observation.

        Args:
            carry: Carry from :meth:`initial_carry`.
            obs: One observation in physical units.
            key: Ignored.

        Returns:
            The carry and the action in physical units.

        Raises:
            ValueError: If ``obs`` or a field does not have the shape that the gain requires, or
                concrete bounds cross.
        """
        require_rank("gain", self.gain, 2, "act, obs")
        require_each("setpoint", self.setpoint, self.gain.shape[1], "columns of gain")
        require_each("obs", obs, self.gain.shape[1], "columns of gain")
        require_each("bias", self.bias, self.gain.shape[0], "rows of gain")
        deviation = widen(obs) - widen(self.setpoint)
        action = widen(self.bias) - product(widen(self.gain), deviation)
        action = narrow(action, floats(self.gain).dtype)
        return carry, _between(action, self.low, self.high)

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """Returns the carry unchanged."""
        return carry

    def tunables(self, spec: Spec) -> tuple[Tunable, ...]:
        """Every nonzero entry of the gain, the setpoints that affect the action, and the biases.

        If the gain has more than sixteen nonzero entries, those of equal size are tuned together.

        Args:
            spec: Channels, which provide the names.
        """
        gain = np.asarray(self.gain, np.float64)
        used = np.flatnonzero(gain)
        groups: dict[Any, tuple[int, ...]] = {}
        for index in used:
            size = float(f"{abs(gain.flat[index]):.6g}")
            group_key = size if len(used) > MANY_ENTRIES else int(index)
            groups[group_key] = (*groups.get(group_key, ()), int(index))
        numbers = []
        for indices in groups.values():
            row, column = divmod(indices[0], gain.shape[1])
            name = f"gain from {spec.obs[column].name} to {spec.action[row].name}"
            name += f" and {len(indices) - 1} equal ones" * (len(indices) > 1)
            entry = (Entry("gain", indices),)
            numbers.append(Tunable(name, "", entry, entry, "factor", 0.5))
        for j in np.flatnonzero(gain.any(axis=0) & (np.asarray(self.setpoint) != 0)):
            numbers.append(_shift("setpoint", int(j), "setpoint of", spec.obs[j], 0.25, int(j)))
        for i in np.flatnonzero(gain.any(axis=1)):
            channel = spec.action[i]
            step = 0.05 * (channel.high - channel.low)
            numbers.append(_shift("bias", int(i), "bias of", channel, step))
        return tuple(numbers)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BaseStock:
    """Orders in every period the quantity missing from a fixed inventory position.

    ``u = clip(level - position obs, low, high)``, where ``position obs`` is stock on hand plus
    stock on order minus backlog.

    Attributes:
        level: The base-stock level of every item, shape ``(act,)``.
        position: Weight of each observation in the position of each item (1 for stock on hand and
            in transit, -1 for backlog, 0 for the rest), shape ``(act, obs)``.
        low: Smallest order, usually zero, shape ``(act,)``.
        high: Largest order, not below ``low``, shape ``(act,)``; under ``jit`` the order is NaN
            where it is below.
    """

    level: Float[Array, " act"]
    position: Float[Array, "act obs"]
    low: Float[Array, " act"]
    high: Float[Array, " act"]

    def initial_carry(self) -> tuple[()]:
        """An empty carry: the policy has no memory."""
        return ()

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[Any, Float[Array, " act"]]:
        """The orders for one observation.

        Args:
            carry: Carry from :meth:`initial_carry`.
            obs: One observation in physical units.
            key: Ignored.

        Returns:
            The carry and the orders in physical units.

        Raises:
            ValueError: If ``obs`` or a field does not have the shape that ``position`` requires, or
                concrete bounds cross.
        """
        require_rank("position", self.position, 2, "act, obs")
        require_each("obs", obs, self.position.shape[1], "columns of position")
        require_each("level", self.level, self.position.shape[0], "rows of position")
        missing = widen(self.level) - product(widen(self.position), widen(obs))
        missing = narrow(missing, floats(self.level).dtype)
        return carry, _between(missing, self.low, self.high)

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """Returns the carry unchanged."""
        return carry

    def tunables(self, spec: Spec) -> tuple[Tunable, ...]:
        """The levels that are not zero.

        Args:
            spec: Channels, which provide the names.
        """
        return tuple(
            Tunable(
                f"level of {spec.action[i].name}",
                spec.action[i].unit,
                (Entry("level", (int(i),)),),
                (Entry("level", (int(i),)),),
                "factor",
                0.2,
            )
            for i in np.flatnonzero(np.asarray(self.level))
        )


def _shift(
    leaf: str, index: int, prefix: str, channel: Channel, step: float, scaled_by: int = -1
) -> Tunable:
    entry = (Entry(leaf, (index,)),)
    return Tunable(f"{prefix} {channel.name}", channel.unit, entry, entry, "shift", step, scaled_by)


def _between(action: Array, low: Array, high: Array) -> Array:
    """The action clipped to its bounds; crossing bounds give NaN if traced, else an error."""
    require_each("low", low, action.shape[0], "actions")
    require_each("high", high, action.shape[0], "actions")
    require_order(low, high)
    return jnp.where(low <= high, jnp.clip(floats(action), low, high), jnp.nan)


# Policies without parameters to learn.


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ConstantPolicy:
    """Returns the same action at every step.

    Attributes:
        action: Constant action in physical units, shape ``(act,)``.
    """

    action: Float[Array, " act"]

    def initial_carry(self) -> tuple[()]:
        """An empty carry: the policy has no memory."""
        return ()

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[Any, Float[Array, " act"]]:
        """The action; ``obs`` and ``key`` are ignored.

        Raises:
            ValueError: If ``action`` is not one-dimensional.
        """
        require_rank("action", self.action, 1, "act")
        return carry, self.action

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """Returns the carry unchanged."""
        return carry


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class UniformPolicy:
    """Independent uniform actions: the baseline of no control at all.

    Attributes:
        low: Lower bounds, shape ``(act,)``, physical units.
        high: Upper bounds, shape ``(act,)``, physical units, not below ``low``.
    """

    low: Float[Array, " act"]
    high: Float[Array, " act"]

    def initial_carry(self) -> tuple[()]:
        """An empty carry: the policy has no memory."""
        return ()

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray | None
    ) -> tuple[Any, Float[Array, " act"]]:
        """An action sampled from ``[low, high)``; ``obs`` is ignored.

        Under ``jit`` the action is NaN where the bounds cross or their difference is infinite.

        Raises:
            ValueError: If there is no key, the bounds differ in shape or are not one-dimensional,
                or concrete bounds cross or have an infinite difference.
        """
        if key is None:
            raise ValueError("key must be a random key, got None; a draw needs one")
        require_rank("low", self.low, 1, "act")
        require_same_shape("low", self.low, "high", self.high)
        low, high = floats(self.low), floats(self.high)
        if is_concrete((self.low, self.high)) and not np.all(
            _valid(np.asarray(low), np.asarray(high))
        ):
            raise ValueError(
                f"low must not be above high, nor infinitely far below, got {self.low} and "
                f"{self.high}; give the range of every action"
            )
        draw = jax.random.uniform(key, low.shape, low.dtype, low, high)
        return carry, jnp.where(_valid(low, high), draw, jnp.nan)

    def log_prob(
        self, carry: Any, obs: Float[Array, " obs"], action: Float[Array, " act"]
    ) -> Float[Array, ""]:
        """Log-density of an action: minus the sum of ``log(high - low)``, and ``-inf`` outside.

        Args:
            carry: Carry with which the policy acted; ignored.
            obs: Observation on which it acted; ignored.
            action: Shape ``(act,)``, physical units.
        """
        low, high = floats(self.low), floats(self.high)
        inside = jnp.all((low <= action) & (action <= high))
        return jnp.where(inside, -jnp.sum(jnp.log(high - low)), -jnp.inf)

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """Returns the carry unchanged."""
        return carry


def _valid(low: Any, high: Any) -> Any:
    """Whether a range can be sampled from."""
    with np.errstate(all="ignore"):
        return (low <= high) & (high - low < np.inf)


# Informing a policy that another controller acted.


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
