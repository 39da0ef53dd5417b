"""The confidence level of every interval, bound and verdict that names none."""

DEFAULT_LEVEL = 0.95
"""Confidence level where none is asked for; ``evaluation.level`` of a run begins with it."""
