"""What every formula stands on: checks of arguments, float widths, products."""
