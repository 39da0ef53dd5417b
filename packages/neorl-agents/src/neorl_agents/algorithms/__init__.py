"""The learners, one per file, documented with their papers; import them from the package itself."""

__all__: list[str] = []
