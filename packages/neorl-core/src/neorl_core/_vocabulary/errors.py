"""The error that all packages raise for unusable input."""


class InputError(ValueError):
    """An input cannot be used.

    The message is one line that names the input and says what to do. The errors of files, logs,
    artefacts and configurations derive from this class, so ``except InputError`` catches them all.
    """
