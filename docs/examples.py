"""A griffe extension for the reference pages: we write `Example:`, griffe knows `Examples:`.

Named in docs/mkdocs.yml. Without it the lines of an example are read as prose, and `[[1.0]]` in a
result as a broken link.
"""

import re

import griffe


class Examples(griffe.Extension):
    """Renames every `Example:` section to the heading that griffe renders."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        """Called by griffe for every object that it has read."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", obj.docstring.value)
