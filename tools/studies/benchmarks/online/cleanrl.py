"""CleanRL's own ppo.py, timed.

    PYTHON tools/studies/benchmarks/online/cleanrl.py PATH_OF_PPO_PY WORLDS UPDATES

The environment of the peer needs ``torch==2.13.0``, ``gymnasium==0.29.1``, ``numpy<2`` and
``tyro``. The file runs as it is, on one thread; what it would write for TensorBoard is thrown away,
which is to its advantage. Prints steps of all worlds per second of processor time, from its second
update to its last.
"""

import contextlib
import io
import runpy
import sys
import time
import types
import warnings

import torch  # pyright: ignore[reportMissingImports]

ROLLOUT = 128
MARKS: list[tuple[int, float]] = []


class NoWriter:
    """Takes the place of TensorBoard's writer, and remembers when an update ended."""

    def __init__(self, folder: str) -> None:
        pass

    def add_text(self, name: str, text: str) -> None:
        """Throws it away."""

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Remembers the last number that the file writes in an update."""
        if name == "charts/SPS":
            MARKS.append((step, time.process_time()))

    def close(self) -> None:
        """There is nothing to close."""


def main() -> None:
    path, worlds, updates = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    stub_module = types.ModuleType("torch.utils.tensorboard")
    stub_module.SummaryWriter = NoWriter  # pyright: ignore[reportAttributeAccessIssue]
    sys.modules["torch.utils.tensorboard"] = stub_module
    steps = updates * ROLLOUT * worlds
    sys.argv = [path, "--num-envs", str(worlds), "--total-timesteps", str(steps), "--no-cuda"]
    with contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(path, run_name="__main__")
    (first, started_at), (last, ended) = MARKS[1], MARKS[-1]
    print((last - first) / (ended - started_at))


if __name__ == "__main__":
    main()
