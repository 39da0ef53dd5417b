"""How to install an optional extra, for messages."""


def install_line(requirement: str) -> str:
    """What a user types to install an extra of a package of the workspace.

    Nothing of the workspace is on a package index yet, so the line is one for a clone.

    Args:
        requirement: Package with its extra, such as ``"neorl-train[search]"``.

    Example:
        >>> install_line("neorl-train[search]")
        'in the clone, python -m pip install "./packages/neorl-train[search]"'
    """
    return f'in the clone, python -m pip install "./packages/{requirement}"'
