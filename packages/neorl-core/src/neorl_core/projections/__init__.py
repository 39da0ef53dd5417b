"""The nearest point of a set: boxes and rate limits."""

from neorl_core.projections._box_and_rate import limit_rate as limit_rate
from neorl_core.projections._box_and_rate import project_box as project_box

__all__ = [
    "limit_rate",
    "project_box",
]
