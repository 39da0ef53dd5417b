"""The error that all packages raise for input that cannot be used."""


class InputError(ValueError):
    """Something that was given cannot be used.

    The message is one line that names the thing and says what to do. The errors of files, logs,
    artefacts and configurations derive from it, so one ``except InputError`` meets them all.
    """
