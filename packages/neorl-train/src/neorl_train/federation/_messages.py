"""The messages: everything that leaves a site, and nothing else does."""

import io
import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from neorl_core import (
    Channel,
    CostChannel,
    DataStatistics,
    FieldStatistics,
    InputError,
    Spec,
    spec_from_dict,
    spec_to_dict,
)

Vector = np.ndarray
"""Float32, shape ``(parameter,)``."""


class Layout(NamedTuple):
    """Position of every parameter in the vector.

    Attributes:
        structure: Structure of the parameter tree.
        shapes: Shape of every leaf, in tree order.
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(math.prod(shape) for shape in self.shapes)

    def tree(self, vector: Vector) -> Any:
        """The parameter tree of a vector."""
        leaves, start = [], 0
        for shape in self.shapes:
            stop = start + math.prod(shape)
            leaves.append(np.array(vector[start:stop]).reshape(shape))
            start = stop
        return jax.tree.unflatten(self.structure, leaves)


def layout_of(parameters: Any, learner: str) -> Layout:
    """Layout of the parameters of a learner in the vector.

    Raises:
        InputError: If a leaf has another type, for which a mean would be meaningless.
    """
    leaves, structure = jax.tree.flatten(parameters)
    for leaf in leaves:
        if leaf.dtype != np.float32:
            raise InputError(
                f"the parameters of {learner} hold an array of {leaf.dtype}, and only float32 "
                "arrays are averaged between sites; keep counters and keys out of the parameters"
            )
    return Layout(structure, tuple(np.shape(leaf) for leaf in leaves))


def flat(parameters: Any) -> Vector:
    """The parameters as one vector, on the host."""
    leaves = jax.device_get(jax.tree.leaves(parameters))
    return np.concatenate([np.asarray(leaf, np.float32).ravel() for leaf in leaves])


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


def compress(update: Float[np.ndarray, " parameter"], *, bits: int, fraction: float) -> Compressed:
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
    sent = (*_round(values, bits), *arrays)
    received = decompress(sent, size=size, bits=bits, fraction=fraction)
    with np.errstate(invalid="ignore"):
        return Compressed(sent, received, update - received)


def decompress(
    arrays: Sequence[np.ndarray], *, size: int, bits: int, fraction: float
) -> Float[np.ndarray, " parameter"]:
    """The update that a message's arrays encode; zero where nothing was sent.

    Raises:
        InputError: If they are not what :func:`compress` sends for this number of coordinates.
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


def _round(values: np.ndarray, bits: int) -> tuple[np.ndarray, ...]:
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


class Introduction(NamedTuple):
    """Description that a site sends before the first round.

    Attributes:
        site: Name of the site.
        rows: Number of rows on which it trains.
        spec: Channels of its plant.
        statistics: Counts, means, standard deviations and ranges of its training rows, one number
            per channel; ``None`` if networks are scaled by declared ranges.
    """

    site: str
    rows: int
    spec: Spec
    statistics: DataStatistics | None


class RoundStart(NamedTuple):
    """Message of the server to a site when a round begins.

    Attributes:
        round: Number of the round, from 0.
        parameters: The common parameters, float32, shape ``(parameter,)``.
        present: Names of the participating sites, among which masks must cancel.
        attempt: Number of earlier attempts at the sum of this round.
    """

    round: int
    parameters: np.ndarray
    present: tuple[str, ...] = ()
    attempt: int = 0


class Update(NamedTuple):
    """Answer of a site.

    Attributes:
        site: Name of the site.
        round: Number of the round.
        rows: Number of rows on which it trains, as in its introduction.
        arrays: The change of its parameters, either unencoded (one float32 vector) or encoded.
    """

    site: str
    round: int
    rows: int
    arrays: tuple[np.ndarray, ...]


def n_bytes(message: Any) -> int:
    """Size of a message's arrays in bytes."""
    arrays = (leaf for leaf in jax.tree.leaves(message) if isinstance(leaf, np.ndarray | jax.Array))
    return sum(np.asarray(array).nbytes for array in arrays)


def check_introductions(introductions: list[Introduction]) -> None:
    """Refuses sites that do not have the same plant, or whose numbers are impossible."""
    first = introductions[0]
    for introduction in introductions:
        _check_same_plant(first, introduction)
        _check_counts(introduction)


def _check_same_plant(first: Introduction, other: Introduction) -> None:
    for field, kind in (("obs", "observed"), ("action", "action"), ("cost", "cost")):
        expected, channels = getattr(first.spec, field), getattr(other.spec, field)
        if len(expected) != len(channels):
            raise InputError(
                f"site {other.site} has {len(channels)} {kind} channels "
                f"({_names(channels)}), site {first.site} has {len(expected)} "
                f"({_names(expected)}); only sites with the same channels can train one policy"
            )
        for own, other_channel in zip(expected, channels, strict=True):
            if own != other_channel:
                raise InputError(
                    f"site {other.site} has the {kind} channel {_describe(other_channel)}, where "
                    f"site {first.site} has {_describe(own)}; convert its log to the same "
                    "channels, units and ranges, or leave the site out"
                )
    if first.spec.dt != other.spec.dt:
        raise InputError(
            f"site {other.site} has a control period of {other.spec.dt:g} s, site {first.site} one "
            f"of {first.spec.dt:g} s; resample its log, or leave the site out"
        )


def _names(channels: tuple[Any, ...]) -> str:
    return ", ".join(channel.name for channel in channels) or "none"


def _describe(channel: Channel | CostChannel) -> str:
    if isinstance(channel, Channel):
        return f"{channel.name} ({channel.low:g} to {channel.high:g} {channel.unit})"
    return f"{channel.name} (limit {channel.limit:g} {channel.unit} per {channel.per})"


def _check_counts(introduction: Introduction) -> None:
    """Requires rows, and statistics over the claimed number of rows."""
    if introduction.rows < 1:
        raise InputError(
            f"site {introduction.site} reports {introduction.rows} rows, and a site needs at least "
            "one to train on"
        )
    if introduction.statistics is None:
        return
    for name, channels in (("obs", introduction.spec.obs), ("action", introduction.spec.action)):
        field = getattr(introduction.statistics, name)
        if round(float(field.count)) != introduction.rows and not _equal_in_float32(
            field.count, introduction.rows
        ):
            raise InputError(
                f"site {introduction.site} reports {introduction.rows} rows, but its statistics of "
                f"{name} count {float(field.count):.0f}; these numbers contradict each other, so "
                "leave the site out"
            )
        for i, channel in enumerate(channels):
            _check_field(introduction.site, channel, *(float(np.asarray(x)[i]) for x in field[1:]))
    for name in ("reward", "episode_return"):
        field = getattr(introduction.statistics, name)
        if not all(np.isfinite(np.asarray(x)).all() for x in field):
            raise InputError(
                f"site {introduction.site} sends statistics of {name} that are not finite; check "
                "its log"
            )


def _equal_in_float32(count: Any, rows: int) -> bool:
    """Float32 holds integers up to 2 ** 24 exactly."""
    return abs(float(count) - rows) <= rows * 1e-6


def _check_field(
    site: str, channel: Channel, mean: float, std: float, low: float, high: float
) -> None:
    slack = 1e-3 * max(abs(low), abs(high), abs(channel.high - channel.low))
    possible = (
        np.isfinite([mean, std, low, high]).all()
        and low - slack <= mean <= high + slack
        and 0 <= std <= (high - low) / 2 + slack
    )
    if not possible:
        raise InputError(
            f"site {site} sends statistics of {channel.name} that no data can have: mean {mean:g}, "
            f"deviation {std:g}, from {low:g} to {high:g} {channel.unit}; leave the site out, or "
            'scale by declared ranges with federation.scaling = "declared"'
        )
    outside = mean < channel.low - slack or mean > channel.high + slack
    if outside:
        raise InputError(
            f"site {site} sends a mean of {channel.name} of {mean:g} {channel.unit}, outside its "
            f"measuring range from {channel.low:g} to {channel.high:g} {channel.unit}; its log has "
            "other units, or its statistics are wrong"
        )


def pack_introduction(introduction: Introduction) -> bytes:
    """An introduction as bytes: first JSON, then numbers."""
    head = {
        "site": introduction.site,
        "rows": introduction.rows,
        "spec": spec_to_dict(introduction.spec),
    }
    text = json.dumps(head).encode()
    return len(text).to_bytes(8, "big") + text + pack_statistics(introduction.statistics)


def unpack_introduction(data: bytes) -> Introduction:
    """The inverse of :func:`pack_introduction`."""
    length = int.from_bytes(data[:8], "big")
    head = json.loads(data[8 : 8 + length])
    statistics = unpack_statistics(data[8 + length :])
    return Introduction(head["site"], head["rows"], spec_from_dict(head["spec"]), statistics)


def pack_statistics(statistics: DataStatistics | None) -> bytes:
    """Statistics as the bytes of a NumPy archive; none as no bytes."""
    if statistics is None:
        return b""
    arrays = {
        f"{name}.{part}": np.asarray(value)
        for name, field in statistics._asdict().items()
        if field is not None
        for part, value in field._asdict().items()
    }
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


def unpack_statistics(data: bytes) -> DataStatistics | None:
    """The inverse of :func:`pack_statistics`."""
    if not data:
        return None
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        arrays = dict(archive)
    fields: dict[str, Any] = {
        name: FieldStatistics(*(arrays[f"{name}.{part}"] for part in FieldStatistics._fields))
        for name in DataStatistics._fields
        if f"{name}.count" in arrays
    }
    return DataStatistics(**fields)
