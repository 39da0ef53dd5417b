"""Compresses messages to the largest coordinates, rounded; the rest is added to the next one."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from neorl_core import InputError

BLOCK = 256
"""Number of coordinates that share one scale."""


class Compressed(NamedTuple):
    """An update in compressed form, and the part left out.

    Attributes:
        arrays: Arrays to send.
        received: The update as the server decodes it.
        residual: The part that was not sent: the update minus ``received``.
    """

    arrays: tuple[np.ndarray, ...]
    received: Float[np.ndarray, " parameter"]
    residual: Float[np.ndarray, " parameter"]


def compressed(
    update: Float[np.ndarray, " parameter"], *, bits: int, fraction: float
) -> Compressed:
    """Keeps the largest coordinates of an update and rounds them to multiples of a scale.

    Of ``d`` coordinates, the ``k = ceil(fraction d)`` with the largest magnitude are sent, so that
    ``|u - sparse(u)|^2 <= (1 - k / d) |u|^2``. Every block of 256 of them has the scale ``max |u| /
    (2^(bits - 1) - 1)``, and its numbers are rounded to multiples of that scale: the error of each
    is at most half a scale.

    Args:
        update: Float32, shape ``(parameter,)``.
        bits: 8, 16, or 32 for no rounding.
        fraction: Fraction of the coordinates that are sent, in (0, 1].

    Returns:
        The arrays to send, the update that they decode to, and the remainder.

    Source: Alistarh et al., The convergence of sparsified gradient methods, NeurIPS 2018;
    Dettmers et al., 8-bit optimizers via block-wise quantization, arXiv 2110.02861.
    """
    size, arrays, values = len(update), (), update
    if fraction < 1:
        count = max(1, int(np.ceil(fraction * size)))
        # Of two equal coordinates the earlier one, so that the choice is the same everywhere.
        order = np.argsort(-np.abs(update), kind="stable")[:count]
        indices = np.sort(order).astype(np.uint32)
        arrays, values = (indices,), update[indices]
    sent = (*_rounded(values, bits), *arrays)
    received = decompressed(sent, size=size, bits=bits, fraction=fraction)
    with np.errstate(invalid="ignore"):
        return Compressed(sent, received, update - received)


def decompressed(
    arrays: Sequence[np.ndarray], *, size: int, bits: int, fraction: float
) -> Float[np.ndarray, " parameter"]:
    """The update that a message's arrays encode; zero where nothing was sent.

    Raises:
        InputError: If they are not what :func:`compressed` sends for this number of coordinates.
    """
    parts = list(arrays)
    count = size if fraction >= 1 else max(1, int(np.ceil(fraction * size)))
    expected_forms = [(np.float32, count)] if bits == 32 else [
        (_whole(bits), count), (np.float32, -(-count // BLOCK)),
    ]  # fmt: skip
    expected_forms += [(np.uint32, count)] if fraction < 1 else []
    forms = [(part.dtype, part.shape) for part in parts]
    if forms != [(np.dtype(kind), (length,)) for kind, length in expected_forms]:
        raise InputError(
            f"the message contains {_forms(forms)}, expected "
            f"{_forms([(np.dtype(kind), (length,)) for kind, length in expected_forms])}"
        )
    indices = parts.pop() if fraction < 1 else None
    values = parts[0]
    if bits < 32:
        scales = np.repeat(parts[1], BLOCK)[:count]
        with np.errstate(invalid="ignore", over="ignore"):
            values = (values.astype(np.float32) * scales).astype(np.float32)
    if indices is None:
        return values
    if (indices >= size).any() or (np.diff(indices.astype(np.int64)) <= 0).any():
        raise InputError(
            "the message names coordinates that do not exist, or names a coordinate twice"
        )
    vector = np.zeros(size, np.float32)
    vector[indices] = values
    return vector


def _rounded(values: np.ndarray, bits: int) -> tuple[np.ndarray, ...]:
    if bits == 32:
        return (values,)
    largest = 2 ** (bits - 1) - 1
    blocks = np.zeros((-(-len(values) // BLOCK), BLOCK), np.float32)
    blocks.ravel()[: len(values)] = values
    top = np.abs(blocks).max(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        scales = (top / np.float32(largest)).astype(np.float32)
        safe = np.where(scales > 0, scales, np.float32(1))[:, None]
        whole = np.clip(np.rint(blocks / safe), -largest, largest)
        # A block with non-finite numbers has a non-finite scale, which the receiver detects.
        whole = np.where(np.isfinite(whole), whole, 1)
    return whole.ravel()[: len(values)].astype(_whole(bits)), scales


def _whole(bits: int) -> type:
    return np.int8 if bits == 8 else np.int16


def _forms(forms: Sequence[tuple[np.dtype, tuple[int, ...]]]) -> str:
    return ", ".join(f"{kind}[{','.join(map(str, shape))}]" for kind, shape in forms) or "nothing"
