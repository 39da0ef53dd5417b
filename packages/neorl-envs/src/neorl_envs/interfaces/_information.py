"""The additional information of a step (``Step.info``) as a dictionary."""

from typing import Any

import numpy as np


def named_information(info: Any) -> dict[str, Any]:
    """The fields of ``Step.info`` by name; an empty tuple has none."""
    return dict(info._asdict()) if hasattr(info, "_asdict") else {}


def plain_information(info: Any) -> dict[str, Any]:
    """The result of :func:`named_information` on the host, as plain Python numbers."""
    fields = named_information(info)
    return {name: value.item() if np.ndim(value) == 0 else value for name, value in fields.items()}
