"""A candidate for many rows and many actions: an interior-point solver (extra ``qp``)."""

from neorl_safety.interior_point._candidate import (
    nearest_by_interior_point as nearest_by_interior_point,
)

__all__ = ["nearest_by_interior_point"]
