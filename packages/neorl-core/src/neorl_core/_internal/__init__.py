"""Helpers shared by all formulas: argument checks, float widths, matrix products."""
