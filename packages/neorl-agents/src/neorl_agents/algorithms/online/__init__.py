"""Learners that make their own experience on a simulated plant; the classes stand at the top."""

__all__: list[str] = []
