"""JAX profiler traces: what the devices and the host did in the first chunks of a training."""

from pathlib import Path
from typing import Any

CHUNKS = 1
"""Number of chunks of each learner in a trace, which also contains the beginning of the next."""


class Profile:
    """Traces the first chunks of every learner; does nothing if no folder is given.

    Args:
        folder: Folder for one trace per learner, by name.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._left = 0

    def begin(self, name: str) -> None:
        """Starts the trace before the first chunk of a learner."""
        if self._folder is None:
            return
        import jax

        self.end()
        options: Any = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # Python calls would make up most of the trace
        # Perfetto, which needs no installation, reads the second file.
        jax.profiler.start_trace(
            str(self._folder / name), create_perfetto_trace=True, profiler_options=options
        )
        self._left = CHUNKS

    def chunk(self) -> None:
        """Counts a finished chunk."""
        if self._left:
            self._left -= 1
            if not self._left:
                self._stop()

    def end(self) -> None:
        """Ends the trace when the training is over, however it ended."""
        if self._left:
            self._left = 0
            self._stop()

    def _stop(self) -> None:
        import jax

        jax.profiler.stop_trace()
