"""Scores of uniform random actions and of the reference, which define the normalised score."""

import functools
import json
from importlib import resources
from typing import Any, NamedTuple

from neorl_core.infrastructure import check_head, unknown_name

VERSION = 1


class Anchors(NamedTuple):
    """Mean scores (return minus the declared penalties) of the two anchors of a plant.

    Attributes:
        random: Score of uniform random actions.
        reference: Score of the plant's reference controller.
        random_error: Standard error of ``random``.
        reference_error: Standard error of ``reference``.
        episodes: Number of episodes of each anchor.
        unit: Unit of the reward.
    """

    random: float
    reference: float
    random_error: float
    reference_error: float
    episodes: int
    unit: str


def anchors(name: str) -> Anchors:
    """The stored anchors of a plant, computed by ``tools/studies/tables/baseline_table.py``.

    Args:
        name: Name of the plant, such as ``"ChemicalReactor-v0"``.

    Raises:
        InputError: If there are none for that name; the message suggests the nearest one.

    Example:
        >>> anchors("ChemicalReactor-v0").episodes >= 100
        True
    """
    known = _stored_anchors()
    if name not in known:
        raise unknown_name("plant with anchors", name, known)
    return Anchors(**known[name])


def normalised_score(name: str, score: float) -> float:
    """Normalised score ``100 (score - random) / (reference - random)``.

    It is 0 for random actions and 100 for the reference.

    Args:
        name: Name of the plant.
        score: Return minus the declared penalties, in the plant's unit of reward.

    Raises:
        InputError: If there are no anchors for that name.

    Example:
        >>> round(normalised_score("ChemicalReactor-v0", anchors("ChemicalReactor-v0").reference))
        100
    """
    ends = anchors(name)
    return 100 * (score - ends.random) / (ends.reference - ends.random)


@functools.cache
def _stored_anchors() -> dict[str, Any]:
    text = resources.files("neorl_envs.scoring").joinpath("anchors.json").read_text()
    document = json.loads(text)
    check_head(document, "score-anchors", VERSION, "anchors.json")
    return document["plants"]
