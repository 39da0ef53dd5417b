"""Helpers of every formula: checks of arguments, float widths, products."""
