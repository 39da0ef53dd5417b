"""Learners that keep cost limits; import the classes from the package itself."""

__all__: list[str] = []
