"""The known kinds of constraints, and how others are added."""

from typing import Any

from neorl_core.infrastructure import Registry
from neorl_safety.constraints._barrier import BarrierKind
from neorl_safety.constraints._by_channel import BoxKind, RateKind
from neorl_safety.constraints._function_kind import FunctionKind
from neorl_safety.constraints._interlock import InterlockKind
from neorl_safety.constraints._linear import LinearKind
from neorl_safety.constraints._protocol import ConstraintKind, Rank
from neorl_safety.constraints._wear import DeadbandKind, RestKind

MEMBERS = ("to_records", "from_records", "describe", "lower")
_OWN: dict[str, ConstraintKind] = {
    "box": BoxKind(),
    "rate": RateKind(),
    "interlock": InterlockKind(),
    "linear": LinearKind(),
    "barrier": BarrierKind(),
    "deadband": DeadbandKind(),
    "rest": RestKind(),
    "function": FunctionKind(),
}


def _check_kind(name: str, kind: Any) -> None:
    """Raises a ``TypeError`` that names the first required member that a kind lacks."""
    if isinstance(kind, type):
        raise TypeError(f"a kind must be an object, got the class; give {kind.__name__}()")
    for member in MEMBERS:
        if not callable(getattr(kind, member, None)):
            raise TypeError(f"a kind must have {', '.join(MEMBERS)}; {member} is missing")


DECLARED_AS = {"range": "box", "while": "interlock", "sum": "linear"}
"""Aliases under which people declare kinds, in addition to their names in a document."""

KINDS = Registry("neorl.constraints", "kind", _OWN, _check_kind)
"""Every kind of constraint, by its name in a document."""


def register_kind(name: str, kind: ConstraintKind) -> None:
    """Makes a kind available to documents, filters, reports and bundles.

    Distributions declare their kinds with an entry point instead::

        [project.entry-points."neorl.constraints"]
        totaliser = "my_package.totaliser:TOTALISER"

    Args:
        name: Name in the field ``kind`` of a record.
        kind: An object with ``to_records``, ``from_records``, ``describe`` and ``lower``; see
            :class:`ConstraintKind`.

    Raises:
        InputError: If the name is taken or a member is missing.
    """
    KINDS.register(name, kind)


def rank_of(name: str) -> Rank:
    """The rank of a kind; ``LIMIT`` if it does not declare one."""
    return Rank(getattr(KINDS.find(name), "rank", Rank.LIMIT))
