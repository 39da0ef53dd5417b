"""Constraints as data, action filters and guards with stated guarantees."""

__all__ = []
