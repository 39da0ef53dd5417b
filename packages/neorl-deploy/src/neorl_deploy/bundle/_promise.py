"""Until when JAX promises to open the programs of a bundle, and what to do before that day."""

from __future__ import annotations

import calendar
import datetime
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neorl_deploy.bundle._manifest import Manifest

JAX_RELEASES = {
    "0.10.2": datetime.date(2026, 6, 17),
    "0.11.0": datetime.date(2026, 7, 16),
    "0.11.1": datetime.date(2026, 8, 17),
    "0.11.2": datetime.date(2026, 9, 17),
    "0.12.0": datetime.date(2026, 10, 19),
    "0.12.0.1": datetime.date(2026, 10, 20),
}
"""Day of every release that this package accepts, from JAX's changelog and the package index."""

PROMISED_MONTHS = 6
WARNED_DAYS = 60
"""The warning begins this many days before the promise ends."""


def promised_until(release: str) -> datetime.date | None:
    """The last day on which a JAX may be released that is promised to open programs of another.

    JAX promises that a serialised program is deserialised and run by a JAX that is up to six months
    newer than the one that exported it. The days of the two releases count, not those of the export
    and of the run: a JAX from within the window opens the program for ever. Newer ones may refuse
    it (since 0.11.1 with an error about the window), or misread it.

    Args:
        release: The JAX that exported the programs.

    Returns:
        The day, or ``None`` if the day of the release is not known here.

    Source: "Compatibility guarantees" in JAX's page *Exporting and serializing staged-out
    computations*, https://docs.jax.dev/en/latest/export/export.html#compatibility-guarantees, and
    the notes beside ``_SERIALIZATION_VERSION`` in ``jax/_src/export/serialization.py``.
    """
    day = JAX_RELEASES.get(release)
    if day is None:
        return None
    years, month = divmod(day.month - 1 + PROMISED_MONTHS, 12)
    last = calendar.monthrange(day.year + years, month + 1)[1]
    return datetime.date(day.year + years, month + 1, min(day.day, last))


def promise_text(manifest: Manifest) -> str:
    """The release that wrote the programs, and until when a newer one is promised to open them."""
    if not manifest.jax:
        return "by a release of JAX that is not recorded; until when others open them is unknown"
    until = manifest.promised_until
    if until is None:
        return f"by JAX {manifest.jax}, of which the day of release, and so its promise, is unknown"
    return f"by JAX {manifest.jax}; a JAX released until {until} is promised to open them"


def warning_lines(manifest: Manifest, path: Path, today: datetime.date) -> Iterator[str]:
    """What to do about programs whose promise ends soon, has ended or is unknown; else nothing."""
    until = manifest.promised_until
    if until is not None and (until - today).days > WARNED_DAYS:
        return
    if until is None:
        yield f"Warning: its programs are {promise_text(manifest)}."
    elif today <= until:
        days = (until - today).days
        yield (
            f"Warning: its programs are {promise_text(manifest)}. A JAX that is released in {days} "
            "days or later may refuse or misread them."
        )
    else:
        yield (
            f"Warning: its programs are by JAX {manifest.jax}, whose promise ended with the "
            f"releases of {until}: a newer JAX may refuse or misread them."
        )
    if manifest.form_of_record == "numpy":
        yield (
            f"  Its NumPy form needs no JAX and stays. `neorl-deploy renew "
            f"{shlex.quote(str(path))}` makes the programs anew from it."
        )
    else:
        yield (
            "  It has no NumPy form to make them anew from: export it again from its run with "
            "today's JAX, or keep the JAX that opens it."
        )
