"""The nearest point of a set: boxes, rate limits, the simplex."""

from neorl_core.projections._box_and_rate import limit_rate as limit_rate
from neorl_core.projections._box_and_rate import project_box as project_box
from neorl_core.projections._simplex import project_simplex as project_simplex

__all__ = [
    "limit_rate",
    "project_box",
    "project_simplex",
]
