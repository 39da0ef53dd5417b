"""Traces of JAX's profiler: what the devices and the host did in the first chunks of a training."""

from pathlib import Path
from typing import Any

CHUNKS = 1
"""Chunks of every learner that a trace holds; the beginning of the next one is in it, too."""


class Profile:
    """One trace for each learner, of its first chunks; nothing where no folder is given.

    Args:
        folder: Folder for a trace of each learner, by its name.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._left = 0

    def begin(self, name: str) -> None:
        """The first chunk of a learner is about to run."""
        if self._folder is None:
            return
        import jax

        self.end()
        options: Any = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # every call of Python would be most of the trace
        # The second file is read by Perfetto, which needs no installation.
        jax.profiler.start_trace(
            str(self._folder / name), create_perfetto_trace=True, profiler_options=options
        )
        self._left = CHUNKS

    def chunk(self) -> None:
        """A chunk is done."""
        if self._left:
            self._left -= 1
            if not self._left:
                self._stop()

    def end(self) -> None:
        """The training is over, however it ended."""
        if self._left:
            self._left = 0
            self._stop()

    def _stop(self) -> None:
        import jax

        jax.profiler.stop_trace()
