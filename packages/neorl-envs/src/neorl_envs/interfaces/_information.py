"""A step's own information by name, whatever an environment puts into it."""

from typing import Any

import numpy as np


def named_information(info: Any) -> dict[str, Any]:
    """The fields of ``Step.info`` by name; none where it is the empty tuple."""
    return dict(info._asdict()) if hasattr(info, "_asdict") else {}


def plain_information(info: Any) -> dict[str, Any]:
    """The result of :func:`named_information` on the host, with numbers as Python's."""
    fields = named_information(info)
    return {name: value.item() if np.ndim(value) == 0 else value for name, value in fields.items()}
