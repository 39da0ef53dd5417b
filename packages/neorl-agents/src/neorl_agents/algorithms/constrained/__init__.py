"""Learners that keep the cost limits of a run; the classes stand at the top of the package."""

__all__: list[str] = []
