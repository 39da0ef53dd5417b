"""Data that other formats do not provide for, stored beside their arrays under our own names."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from neorl_core import CostChannel, Spec
from neorl_envs.datasets._checks import DatasetError
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.datasets._optional import OPTIONAL, optional_columns
from neorl_envs.datasets._specification import plain_spec, read_spec

DESCRIPTION = "neorl_description"
"""Name of the entry with specification and attributes as JSON."""
COLUMNS = ("cost", "mask", *OPTIONAL)


def extras_of(dataset: Dataset) -> dict[str, np.ndarray]:
    """Costs, mask and optional columns by name; a mask that is true everywhere is left out."""
    rows: Any = dataset.transitions
    extras: dict[str, np.ndarray] = {}
    if dataset.spec.n_cost:
        extras["cost"] = rows.cost
    if not np.asarray(rows.mask).all():
        extras["mask"] = rows.mask
    return {**extras, **dict(optional_columns(dataset))}


def description_of(dataset: Dataset) -> str:
    """Specification and attributes as JSON."""
    return json.dumps({"spec": plain_spec(dataset.spec), "attributes": dict(dataset.attributes)})


def read_description(text: str, source: str) -> tuple[Spec, dict[str, Any]]:
    """Inverse of :func:`description_of`.

    Raises a ``DatasetError`` if the text was not written by that function.
    """
    try:
        value = json.loads(text)
        spec, attributes = value["spec"], value["attributes"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DatasetError(
            f"{source}: {DESCRIPTION} is not a valid description: {error}"
        ) from error
    if not isinstance(attributes, dict):
        raise DatasetError(f"{source}: {DESCRIPTION}: attributes must be a JSON object")
    return read_spec(json.dumps(spec), source), attributes


def cost_channels(cost: np.ndarray | None) -> tuple[CostChannel, ...]:
    """Cost channels without a description: numbered, with limit 0 per step and unknown unit."""
    width = 0 if cost is None else cost.shape[1]
    return tuple(CostChannel(f"cost_{i}", "?", 0.0, "step") for i in range(width))


def column_cost(extras: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The costs as columns; formats with a single cost store it without the second axis."""
    cost = extras.get("cost")
    return cost[:, None] if cost is not None and cost.ndim == 1 else cost
