"""Writes an episode as an animated GIF."""

import functools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
from matplotlib.animation import PillowWriter
from matplotlib.backends.backend_agg import FigureCanvasAgg

from neorl_core import Spec, Trajectory
from neorl_core.infrastructure import write_bytes
from neorl_envs.render._trends import trends


def animate(
    spec: Spec,
    trajectory: Trajectory,
    path: Path,
    *,
    bands: Mapping[str, tuple[float, float]],
    tracked: Mapping[str, str] | None = None,
    channels: Sequence[str] | None = None,
    title: str = "",
    frames: int = 40,
    fps: int = 5,
    dpi: int = 60,
) -> Path:
    """Writes one episode as an animated GIF of growing trends.

    The axes are those of the whole episode, so that only the lines move.

    Args:
        spec: Channels and period.
        trajectory: One episode, with at least one step.
        path: The file; it is written completely or not at all.
        bands: Lower and upper limits of observed channels by name.
        tracked: See :func:`trends`.
        channels: See :func:`trends`.
        title: Title above the panels.
        frames: Number of frames; limited to the number of steps.
        fps: Frames per second.
        dpi: Resolution.

    Returns:
        The path of the file.

    Raises:
        ValueError: If the episode has no step, or ``frames`` or ``fps`` is below one.
        OSError: If the file cannot be written; an existing file then remains unchanged.
    """
    n = len(trajectory.reward)
    if n < 1:
        raise ValueError("an animation needs at least one step, got an empty trajectory")
    if frames < 1 or fps < 1:
        raise ValueError(f"frames and fps must be at least 1, got {frames} and {fps}")
    frames = min(frames, n)
    draw_frame = functools.partial(
        trends, spec, bands=bands, tracked=tracked, channels=channels, title=title
    )
    figure = draw_frame(trajectory)
    FigureCanvasAgg(figure)
    ranges = [(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes]
    writer = PillowWriter(fps=fps)
    # The writer infers the format from the suffix, so the temporary file must have that suffix.
    with tempfile.TemporaryDirectory() as folder:
        drawing = Path(folder) / "animation.gif"
        with writer.saving(figure, str(drawing), dpi):
            for frame in range(1, frames + 1):
                part: Trajectory = jax.tree.map(
                    lambda column, end=-(-n * frame // frames): column[:end], trajectory
                )
                writer.fig = draw_frame(part, steps=n)
                FigureCanvasAgg(writer.fig)
                for axes, (xlim, ylim) in zip(writer.fig.axes, ranges, strict=True):
                    axes.set_xlim(*xlim)
                    axes.set_ylim(*ylim)
                writer.grab_frame()
        write_bytes(path, drawing.read_bytes())
    return path
