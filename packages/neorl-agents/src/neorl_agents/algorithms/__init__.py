"""The learners, one a file, each documented with its paper; import them from the package itself."""

__all__: list[str] = []
