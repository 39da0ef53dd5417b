"""From the table ``[connection]`` of a tag map to a connection."""

from __future__ import annotations

import importlib
import sys
from importlib import metadata
from typing import Any

from neorl_deploy._errors import DeployError
from neorl_deploy.loop._plant import Plant
from neorl_deploy.loop._tags import TagMap

GROUP = "neorl.connections"
"""Entry points by which a package offers a kind of connection."""


def connect(tags: TagMap) -> Plant:
    """Makes the connection that a tag map names.

    A kind is the name of an entry point in the group ``neorl.connections``, or ``MODULE:CLASS``. It
    is called with the tag map as ``tags`` and with every other entry of the table.

    Args:
        tags: The tag map.

    Returns:
        The connection.

    Raises:
        DeployError: If the kind is unknown, cannot be imported, or refuses its settings.
    """
    settings = dict(tags.connection)
    kind = settings.pop("kind")
    make = _maker(kind)
    try:
        return make(tags=tags, **settings)
    except TypeError as error:
        raise DeployError(f"[connection] of kind {kind!r}: {error}") from error


def _maker(kind: str) -> Any:
    offered = metadata.entry_points(group=GROUP)
    if kind in offered.names:
        return offered[kind].load()
    module, colon, name = kind.partition(":")
    if not colon:
        known = ", ".join(sorted(offered.names)) or "none are installed"
        raise DeployError(f"[connection] kind {kind!r} is none of {known}, and no MODULE:CLASS")
    if "" not in sys.path:
        sys.path.insert(0, "")  # a module beside the tag map, as for other commands
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise DeployError(f"[connection] kind {kind!r} cannot be imported: {error}") from error
