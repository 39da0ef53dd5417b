"""Introductions and statistics as bytes: first JSON, then numbers."""

import io
import json
from typing import Any

import numpy as np

from neorl_core import DataStatistics, FieldStatistics, spec_from_dict, spec_to_dict
from neorl_train.federation._messages import Introduction


def packed_introduction(introduction: Introduction) -> bytes:
    """An introduction as bytes: first JSON, then numbers."""
    head = {
        "site": introduction.site,
        "rows": introduction.rows,
        "spec": spec_to_dict(introduction.spec),
    }
    text = json.dumps(head).encode()
    return len(text).to_bytes(8, "big") + text + packed_statistics(introduction.statistics)


def unpacked_introduction(data: bytes) -> Introduction:
    """The inverse of :func:`packed_introduction`."""
    length = int.from_bytes(data[:8], "big")
    head = json.loads(data[8 : 8 + length])
    statistics = unpacked_statistics(data[8 + length :])
    return Introduction(head["site"], head["rows"], spec_from_dict(head["spec"]), statistics)


def packed_statistics(statistics: DataStatistics | None) -> bytes:
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


def unpacked_statistics(data: bytes) -> DataStatistics | None:
    """The inverse of :func:`packed_statistics`."""
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
