"""A table to which other distributions can add entries, and the nearest name to a mistyped one."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from typing import Generic, TypeVar

from neorl_core._vocabulary.errors import InputError

# The nearest name to a mistyped one.


_SIMILARITY = 0.4  # difflib's ratio; smaller ones suggest unrelated names
_VERSION = re.compile(r"-v[0-9]+$")  # a suffix that all names share must not make them similar


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name most similar to a given one; letter case and version suffixes are ignored.

    Args:
        name: Name as given.
        known: Names that exist.

    Returns:
        One of ``known``, or ``None`` if none is similar.

    Example:
        >>> from neorl_core.infrastructure import nearest_name
        >>> nearest_name("TD3-CB", ["bc", "td3-bc", "iql"])
        'td3-bc'
    """
    by_stem = {_stem(candidate): candidate for candidate in known}
    match = difflib.get_close_matches(_stem(name), by_stem, n=1, cutoff=_SIMILARITY)
    return by_stem[match[0]] if match else None


def _stem(name: str) -> str:
    return _VERSION.sub("", name.lower())


def unknown_name(
    kind: str, name: str, known: Iterable[str], error: type[InputError] = InputError
) -> InputError:
    """The error for an unknown name, which suggests the nearest known one.

    Args:
        kind: Kind of object that the name refers to, for example ``"environment"``.
        name: Name as given.
        known: Names that exist.
        error: Class of the error.

    Returns:
        The error, for the caller to raise.

    Example:
        >>> from neorl_core.infrastructure import unknown_name
        >>> print(unknown_name("algorithm", "ipl", ["bc", "iql"]))
        unknown algorithm 'ipl'; did you mean 'iql'? known: bc, iql
    """
    names = list(known)
    match = nearest_name(name, names)
    hint = f"did you mean {match!r}? " if match else ""
    return error(f"unknown {kind} {name!r}; {hint}known: {', '.join(names) or 'none'}")


# A table to which other distributions can add entries, by an entry point or a call.


Entry = TypeVar("Entry")


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Named entries: those of the package, those registered by a call, those of entry points.

    Entry points are listed without an import; one is imported when its entry is requested, so a
    broken distribution affects only those who use it. The package's own names cannot be replaced. A
    name provided by two distributions raises an error when it is used.

    Example:
        >>> from neorl_core.infrastructure import Registry
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
        """Creates a table with the package's own entries.

        Args:
            group: Group of the entry points, for example ``"neorl.algorithms"``.
            kind: What an entry is, in the singular, for messages: ``"algorithm"``.
            builtin: The package's own entries by name.
            check: Raises a ``ValueError`` or ``TypeError`` for an external entry that does not
                fulfil the contract.
        """
        self.group = group
        self.kind = kind
        self._check = check
        self._builtin: dict[str, Entry] = dict(builtin)
        self._registered: dict[str, Entry] = {}
        self._imported: dict[str, Entry] = {}

    def register(self, name: str, entry: Entry) -> None:
        """Adds an entry for this process.

        Args:
            name: Name on the command line and in files. Registering the same object twice is
                allowed, another object under an existing name is not.
            entry: The object to register.

        Raises:
            InputError: If the name is taken or is not a valid word, or the entry breaks the
                contract.
        """
        self._require_word(name)
        if name in self and self._registered.get(name, self) is not entry:
            raise InputError(f"the {self.kind} {name!r} exists already; choose another name")
        self._require_contract(name, entry, "registered")
        self._registered[name] = entry

    def origin(self, name: str) -> str:
        """Distribution and version that provide an entry; empty for the package's own entries.

        Args:
            name: Name of an entry.

        Returns:
            For example ``"my-learners 0.3"``; ``"registered"`` for an entry added by a call.

        Raises:
            InputError: If there is no such entry; the message suggests the nearest name.
        """
        if name in self._builtin:
            return ""
        if name in self._registered:
            return "registered"
        return " and ".join(_distribution(point) for point in self._points_of(name, InputError))

    def find(self, name: str, error: type[InputError] = InputError) -> Entry:
        """Looks up an entry by name.

        Args:
            name: Name as given by a user.
            error: Class of the error.

        Returns:
            The entry; one from an entry point is imported on the first call.

        Raises:
            InputError: If there is no such entry (the nearest name is suggested), if two
                distributions provide it, or if its distribution cannot be imported or breaks the
                contract (the message names it).
        """
        for entries in (self._builtin, self._registered, self._imported):
            if name in entries:
                return entries[name]
        points = self._points_of(name, error)
        origin = self.origin(name)
        if len(points) > 1:
            raise error(f"{origin} both provide the {self.kind} {name!r}; uninstall one of them")
        try:
            entry = points[0].load()
        except Exception as problem:
            raise error(
                f"the {self.kind} {name!r} of {origin} cannot be imported from {points[0].value} "
                f"({type(problem).__name__}: {problem}); update or remove that distribution"
            ) from problem
        try:
            self._require_contract(name, entry, origin)
        except InputError as problem:
            raise error(f"{problem}; update or remove that distribution") from problem
        self._imported[name] = entry
        return entry

    def _require_word(self, name: str) -> None:
        if not isinstance(name, str) or not name or any(c.isspace() or c in "./\\:=" for c in name):
            raise InputError(
                f"{self.kind} name {name!r} is not a plain word; leave out spaces, dots, colons, "
                "slashes and equals signs"
            )

    def _require_contract(self, name: str, entry: Entry, origin: str) -> None:
        if self._check is None:
            return
        try:
            self._check(name, entry)
        except (TypeError, ValueError) as problem:
            raise InputError(
                f"the {self.kind} {name!r} ({origin}) cannot be used; {problem}"
            ) from problem

    def _points(self) -> dict[str, list[metadata.EntryPoint]]:
        """The entry points by name, in a fixed order, without the package's own names."""
        points: dict[str, list[metadata.EntryPoint]] = {}
        for point in sorted(metadata.entry_points(group=self.group), key=_distribution):
            if point.name not in self._builtin:
                points.setdefault(point.name, []).append(point)
        return points

    def _points_of(self, name: str, error: type[InputError]) -> list[metadata.EntryPoint]:
        points = self._points().get(name)
        if points is None and ":" in name:  # a class in a module, which other commands accept
            unknown = unknown_name(self.kind, name, self, error)
            raise error(f"{unknown}; a class of your own needs an entry point in {self.group}")
        if points is None:
            raise unknown_name(self.kind, name, self, error)
        return points

    def __getitem__(self, name: str) -> Entry:
        """The entry of a name; raises ``KeyError`` if there is none, like any mapping."""
        if name not in self:
            raise KeyError(name)
        return self.find(name)

    def __iter__(self) -> Iterator[str]:
        """The names: the package's own, then the registered ones, then the entry points by name."""
        yield from self._builtin
        yield from self._registered
        yield from sorted(name for name in self._points() if name not in self._registered)

    def __len__(self) -> int:
        """Number of entries."""
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        """Whether there is an entry of this name; nothing is imported."""
        return name in self._builtin or name in self._registered or name in self._points()

    def __repr__(self) -> str:
        """One line with the names."""
        return f"Registry({self.group}: {', '.join(self)})"


def _distribution(point: metadata.EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value
