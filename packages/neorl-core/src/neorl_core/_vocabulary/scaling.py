"""Affine maps between physical units and the unit intervals that networks see."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from neorl_core._internal.checks import (
    checked_positive,
    floats,
    is_concrete,
    like,
    require_rank,
    require_same_shape,
)
from neorl_core._vocabulary.channels import Channel, highs, lows


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Affine:
    """The invertible map ``scaled = (physical - offset) / scale``, channel by channel.

    The maps raise ``ValueError`` if the last axis of what they are given is not that of the
    channels, ``offset`` and ``scale`` differ in shape or are not of rank one, or a known scale is
    not positive. A traced scale is used as it comes: a negative one mirrors, zero divides.

    Attributes:
        offset: Physical value of scaled zero, in physical units, shape ``(channel,)``.
        scale: Physical length of scaled one, in physical units, positive, shape ``(channel,)``.
    """

    offset: Float[Array, " channel"]
    scale: Float[Array, " channel"]

    def to_scaled(self, physical: Float[ArrayLike, "*batch channel"]) -> Array:
        """Physical units to scaled ones, shape unchanged."""
        physical = jnp.asarray(physical)
        self._require_channels("physical", physical)
        return (physical - _beside(physical, self.offset)) / _beside(physical, self.scale)

    def to_physical(self, scaled: Float[ArrayLike, "*batch channel"]) -> Array:
        """Scaled units to physical ones, shape unchanged."""
        scaled = jnp.asarray(scaled)
        self._require_channels("scaled", scaled)
        return scaled * _beside(scaled, self.scale) + _beside(scaled, self.offset)

    def _require_channels(self, name: str, values: Array) -> None:
        require_rank("offset", self.offset, 1, "channel")
        require_same_shape("offset", self.offset, "scale", self.scale)
        if is_concrete(self.scale):
            checked_positive("scale", self.scale, many=True)
        if values.shape[-1:] != jnp.shape(self.offset):
            raise ValueError(
                f"{name} must have the {jnp.shape(self.offset)[0]} channels of the map along its "
                f"last axis, got shape {values.shape}; check the order of its axes"
            )


def unit_interval(channels: Sequence[Channel]) -> Affine:
    """The map that takes ``[low, high]`` of every channel to ``[-1, 1]``.

    Args:
        channels: Each with its physical range.

    Returns:
        The map, in float32.

    Example:
        >>> valve = Channel("valve", "%", 0.0, 100.0)
        >>> unit_interval([valve]).to_scaled(jnp.array([75.0])).tolist()
        [0.5]
    """
    # In float64: a narrow range far from zero has a width of zero in float32.
    low, high = np.asarray(lows(channels)), np.asarray(highs(channels))
    middle, half = (high + low) / 2, (high - low) / 2
    return Affine(jnp.asarray(middle, jnp.float32), jnp.asarray(half, jnp.float32))


def standardiser(
    mean: Float[Array, " channel"],
    std: Float[Array, " channel"],
    *,
    span: Float[ArrayLike, " channel"],
    epsilon: float = 1e-3,
) -> Affine:
    """The map ``(x - mean) / max(std, epsilon * span)``, safe for constant channels.

    A channel that hardly moves in the data is scaled by a thousandth of its measuring range, as
    fine as most instruments resolve: where it does move later, its scaled value stays within
    ``1 / epsilon``. Mean, deviation and range change with the unit together, so the scaled value
    does not depend on it. A range stated much too wide makes such a channel disappear.

    Args:
        mean: Mean of each channel, physical units.
        std: Deviation of each channel, not negative; a NaN scale under ``jit`` where it is
            negative.
        span: Length of the measuring range, ``high - low``, per channel, positive; a NaN scale
            under ``jit`` where it is not.
        epsilon: Least scale as a fraction of ``span``, positive; NaN results under ``jit`` where
            it is not.

    Returns:
        The map.

    Raises:
        ValueError: If the shapes differ, a concrete ``std`` is negative or not finite, a concrete
            ``span`` not positive or not finite, or ``epsilon`` is not a scalar or, where concrete,
            not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> mean, std = jnp.array([300.0, 5.0]), jnp.array([0.5, 0.0])
        >>> scaling = standardiser(mean, std, span=jnp.array([200.0, 4.0]))
        >>> scaling.to_scaled(jnp.array([301.0, 5.0])).round(4).tolist()
        [2.0, 0.0]
    """
    require_same_shape("mean", mean, "std", std)
    require_same_shape("mean", mean, "span", span)
    std = floats(checked_positive("std", std, or_zero=True, many=True))
    span = checked_positive("span", span, many=True)
    epsilon = checked_positive("epsilon", epsilon)
    return Affine(offset=mean, scale=jnp.maximum(std, like(epsilon, std) * like(span, std)))


def _beside(batch: Array, channels: Float[Array, " channel"]) -> Array:
    return jnp.reshape(channels, (1,) * (batch.ndim - 1) + channels.shape)
