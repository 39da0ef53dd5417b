"""Learners that collect their own experience on a simulated plant; import them from the package."""

__all__: list[str] = []
