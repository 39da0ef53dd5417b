"""How many programs this process has compiled."""

import functools
from typing import Any

from jax import monitoring

_EVENT = "/jax/core/compile/backend_compile_duration"


def compilations() -> int:
    """Programs compiled, or read from disk, since the first call."""
    return len(_events())


@functools.cache
def _events() -> list[str]:
    events: list[str] = []

    def note(event: str, duration_secs: float, **kwargs: Any) -> None:
        if event == _EVENT:
            events.append(event)

    monitoring.register_event_duration_secs_listener(note)
    return events
