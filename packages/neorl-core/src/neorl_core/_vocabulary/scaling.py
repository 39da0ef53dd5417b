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

    The maps raise ``ValueError`` if the last axis of the argument does not match the channels, if
    ``offset`` and ``scale`` differ in shape or are not one-dimensional, or if a concrete scale is
    not positive. A traced scale is not checked: a negative one mirrors the axis, zero causes a
    division by zero.

    Attributes:
        offset: Physical value that maps to zero, in physical units, shape ``(channel,)``.
        scale: Physical length that maps to one, in physical units, positive, shape ``(channel,)``.
    """

    offset: Float[Array, " channel"]
    scale: Float[Array, " channel"]

    def to_scaled(self, physical: Float[ArrayLike, "*batch channel"]) -> Array:
        """Converts physical units to scaled ones; the shape is unchanged."""
        physical = jnp.asarray(physical)
        self._require_channels("physical", physical)
        return (physical - _beside(physical, self.offset)) / _beside(physical, self.scale)

    def to_physical(self, scaled: Float[ArrayLike, "*batch channel"]) -> Array:
        """Converts scaled units to physical ones; the shape is unchanged."""
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
        channels: Channels with their physical ranges.

    Returns:
        The map, in float32.

    Example:
        >>> valve = Channel("valve", "%", 0.0, 100.0)
        >>> unit_interval([valve]).to_scaled(jnp.array([75.0])).tolist()
        [0.5]
    """
    # In float64: a narrow range far from zero has zero width in float32.
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

    A channel that hardly moves in the data is scaled by a thousandth of its measuring range (the
    default ``epsilon``), about the resolution of most instruments. If it moves later, its scaled
    value stays within ``1 / epsilon``. Mean, standard deviation and range change with the unit
    together, so the scaled value does not depend on the unit. If the stated range is much too wide,
    such a channel is scaled to almost nothing.

    Args:
        mean: Mean of each channel, physical units.
        std: Standard deviation of each channel, not negative; under ``jit`` a negative one gives a
            NaN scale.
        span: Length of the measuring range, ``high - low``, per channel, positive; under ``jit``
            any other value gives a NaN scale.
        epsilon: Smallest scale as a fraction of ``span``, positive; under ``jit`` any other value
            gives NaN results.

    Returns:
        The map.

    Raises:
        ValueError: If the shapes differ, a concrete ``std`` is negative or not finite, a concrete
            ``span`` is not positive or not finite, or ``epsilon`` is not a scalar or, if concrete,
            is not positive.

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
