"""Affine maps between physical units and the unit intervals that networks see."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from neorl_core._internal.checks import (
    is_concrete,
    require_positive,
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
            require_positive("scale", self.scale, many=True)
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
    mean: Float[Array, " channel"], std: Float[Array, " channel"], *, epsilon: float = 1e-3
) -> Affine:
    """The map ``(x - mean) / (std + epsilon * max(1, |mean|))``, safe for constant channels.

    A channel that never moves in the data has ``std = 0``; the floor keeps its scaled value
    bounded when it does move later, in proportion to its magnitude.

    Args:
        mean: Per channel, physical units.
        std: Per channel, physical units, not negative; a NaN scale under ``jit`` where it is
            negative.
        epsilon: Relative floor of the scale, positive; NaN results under ``jit`` where it is not.

    Returns:
        The map.

    Raises:
        ValueError: If the shapes differ, a concrete ``std`` is negative or not finite, or
            ``epsilon`` is not a scalar or, where concrete, not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> scaling = standardiser(jnp.array([10.0]), jnp.array([0.99]))
        >>> scaling.to_scaled(jnp.array([11.0])).round(4).tolist()
        [1.0]
    """
    require_same_shape("mean", mean, "std", std)
    std = require_positive("std", std, or_zero=True, many=True)
    epsilon = require_positive("epsilon", epsilon)
    return Affine(offset=mean, scale=std + epsilon * jnp.maximum(1.0, jnp.abs(mean)))


def _beside(batch: Array, channels: Float[Array, " channel"]) -> Array:
    return jnp.reshape(channels, (1,) * (batch.ndim - 1) + channels.shape)
