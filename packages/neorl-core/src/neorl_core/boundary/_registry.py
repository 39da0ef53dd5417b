"""A table that other distributions can add to: by an entry point, or by a call."""

from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Generic, TypeVar

from neorl_core._vocabulary.errors import InputError
from neorl_core.boundary._names import unknown_name

Entry = TypeVar("Entry")


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Named entries: those of the package, those registered by a call, those of entry points.

    Entry points are listed without importing anything; one is imported when its entry is asked
    for. So a broken distribution harms nobody who does not use it.

    Example:
        >>> from neorl_core.boundary import Registry
        >>> colours = Registry("example.colours", "colour", {"red": 1})
        >>> colours.register("green", 2)
        >>> list(colours), colours["green"]
        (['red', 'green'], 2)
    """

    def __init__(
        self,
        group: str,
        kind: str,
        builtin: Mapping[str, Entry],
        check: Callable[[str, Entry], None] | None = None,
    ) -> None:
        """Makes a table with the package's own entries.

        Args:
            group: Of the entry points, for example ``"neorl.algorithms"``.
            kind: What an entry is, in the singular, for messages: ``"algorithm"``.
            builtin: The package's own entries by name.
            check: Raises a ``ValueError`` or ``TypeError`` for an entry from outside that does
                not fulfil the contract.
        """
        self.group = group
        self.kind = kind
        self._entries: dict[str, Entry] = dict(builtin)
        self._builtin = frozenset(builtin)
        self._check = check
        self._origin: dict[str, str] = {}

    def register(self, name: str, entry: Entry) -> None:
        """Adds an entry for this process.

        Args:
            name: Its name on the command line and in files; registering the same object twice is
                allowed, another object under a taken name is not.
            entry: What the name stands for.

        Raises:
            InputError: If the name is taken or is no word, or the entry breaks the contract.
        """
        if not name or any(c.isspace() or c in "./\\:=" for c in name):
            raise InputError(
                f"{self.kind} name {name!r} must be one word without spaces, dots or slashes"
            )
        taken = self._entries.get(name, entry)
        if taken is not entry or (name in self._points() and name not in self._entries):
            raise InputError(f"the {self.kind} {name!r} exists already; choose another name")
        self._checked(name, entry, "register")
        self._entries[name] = entry

    def origin(self, name: str) -> str:
        """Who brought an entry: empty for the package's own, else distribution and version.

        Args:
            name: Of an entry.

        Returns:
            For example ``"my-learners 0.3"``; ``"registered"`` for one added by a call.
        """
        if name in self._builtin:
            return ""
        point = self._points().get(name)
        if point is None or point.dist is None:
            return "registered"
        return f"{point.dist.name} {point.dist.version}"

    def find(self, name: str, error: type[InputError] = InputError) -> Entry:
        """The entry of a name.

        Args:
            name: As given by a user.
            error: Class of the error.

        Returns:
            The entry; that of an entry point is imported on the first call.

        Raises:
            InputError: If there is none, with the nearest name; or if the distribution that brings
                it cannot be imported or breaks the contract, which is named.
        """
        if name in self._entries:
            return self._entries[name]
        point = self._points().get(name)
        if point is None:
            raise unknown_name(self.kind, name, self, error)
        try:
            entry = point.load()
        except Exception as problem:
            raise error(
                f"the {self.kind} {name!r} of {self.origin(name)} cannot be imported from "
                f"{point.value} ({type(problem).__name__}: {problem}); update or remove it"
            ) from problem
        try:
            self._checked(name, entry, self.origin(name))
        except InputError as problem:
            raise error(str(problem)) from problem
        self._entries[name] = entry
        return entry

    def _checked(self, name: str, entry: Entry, origin: str) -> None:
        if self._check is None:
            return
        try:
            self._check(name, entry)
        except (TypeError, ValueError) as problem:
            raise InputError(f"the {self.kind} {name!r} ({origin}): {problem}") from problem

    def _points(self) -> dict[str, metadata.EntryPoint]:
        # The package's own names win: an installed distribution cannot replace them unnoticed.
        found = metadata.entry_points(group=self.group)
        return {point.name: point for point in found if point.name not in self._builtin}

    def __getitem__(self, name: str) -> Entry:
        """The entry of a name; ``KeyError`` where there is none, as of any mapping."""
        if name not in self._entries and name not in self._points():
            raise KeyError(name)
        return self.find(name)

    def __iter__(self) -> Iterator[str]:
        """The names: the package's own first, then what was added, then entry points."""
        yield from self._entries
        yield from sorted(name for name in self._points() if name not in self._entries)

    def __len__(self) -> int:
        """How many entries there are."""
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        """Whether there is an entry of this name; nothing is imported."""
        return name in self._entries or name in self._points()

    def __repr__(self) -> str:
        """One line with the names."""
        return f"Registry({self.group}: {', '.join(self)})"
