"""One learner a file, beside its paper; the classes stand at the top of the package."""

__all__: list[str] = []
