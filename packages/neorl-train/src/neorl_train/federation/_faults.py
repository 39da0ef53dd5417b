"""Simulated faults of sites, to test how a federation reacts to failures and false counts."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np

from neorl_core import InputError
from neorl_core.infrastructure import unknown_name
from neorl_train.federation._messages import Update

FaultKind = Literal["dead", "late", "scaled", "flipped", "nan", "miscounts"]


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault of a site in a range of rounds.

    Attributes:
        site: Name of the site.
        kind: ``"dead"`` loses its state and does not answer; ``"late"`` answers after the end of
            the round; ``"scaled"`` multiplies its update by ``factor``, ``"flipped"`` also reverses
            its sign, ``"nan"`` sends a NaN in every coordinate; ``"miscounts"`` claims ``factor``
            times its rows.
        first: First round with the fault, from 0.
        last: Last round with the fault; -1 for all remaining rounds.
        factor: See ``kind``.
    """

    site: str = ""
    kind: FaultKind = "dead"
    first: int = 0
    last: int = -1
    factor: float = 10.0

    def at(self, round_: int) -> bool:
        """Whether the fault is active in a round."""
        return self.first <= round_ and (self.last < 0 or round_ <= self.last)


def check_faults(
    faults: Sequence[Fault], names: Sequence[str], *, secure_sum: bool = False
) -> None:
    """Refuses faults of unknown sites, and those that masks would hide.

    Raises:
        InputError: Suggests the closest site.
    """
    for fault in faults:
        if fault.site not in names:
            raise unknown_name("site of a fault", fault.site, names)
        if secure_sum and fault.kind in ("scaled", "flipped", "nan"):
            raise InputError(
                f"the fault {fault.kind!r} of {fault.site} cannot be simulated with "
                "messages.secure_sum, because single updates are not visible; leave one of them out"
            )
        if fault.first < 0:
            raise InputError(
                f"the fault of {fault.site} begins in round {fault.first}, and rounds "
                "count from 0; give a round of 0 or more"
            )


def is_fault(faults: Sequence[Fault], site: str, kind: FaultKind, round_: int) -> bool:
    """Whether a site has a fault of a kind in a round."""
    return any(fault.site == site and fault.kind == kind and fault.at(round_) for fault in faults)


def altered(faults: Sequence[Fault], update: Update) -> Update:
    """The update that a site with these faults sends instead of an honest one."""
    for fault in faults:
        if fault.site != update.site or not fault.at(update.round):
            continue
        first, *rest = update.arrays or (np.zeros(0, np.float32),)
        match fault.kind:
            case "scaled":
                first = (first * np.float32(fault.factor)).astype(first.dtype)
            case "flipped":
                first = (-first * np.float32(fault.factor)).astype(first.dtype)
            case "nan":
                first = np.full_like(first, np.nan)
            case "miscounts":
                update = update._replace(rows=int(update.rows * fault.factor))
        if update.arrays:
            update = update._replace(arrays=(first, *rest))
    return update
