"""Plots of trajectories; needs the extra ``render`` and is not imported by other modules."""

import functools
import io
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int, UInt8
from matplotlib import colormaps
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from neorl_core import Channel, Spec, Trajectory
from neorl_core.infrastructure import unknown_name, write_bytes

__all__ = ["Window", "animate", "compare", "grid_picture", "picture", "png", "trends"]

# Selects the channels of a plant to draw, and groups them into panels.


ALL = "all"
FEWEST = 3
WORDS = re.compile(r"_|(?<=[A-Za-z])(?=\d+$)")


class Panel(NamedTuple):
    """Channels that are drawn in one panel.

    Attributes:
        label: Common beginning of their names, or the name of a single channel.
        unit: Their common unit.
        channels: Their indices among the channels of the plant.
        names: The distinguishing parts of their names; empty for a single channel.
    """

    label: str
    unit: str
    channels: tuple[int, ...]
    names: tuple[str, ...] = ()


def panels(
    channels: Sequence[Channel], requested: Sequence[str] | None = None
) -> tuple[Panel, ...]:
    """Groups runs of similar channels, such as ``T_zone_1`` to ``T_zone_6``, into one panel each.

    Channels form a group if at least three in a row have the same unit, the same number of words in
    their names, and the same first words.

    ``requested`` names channels to draw, each in its own panel, in this order; ``("all",)`` stands
    for every channel, ``None`` for all channels in groups. Raises an ``InputError`` if a name is
    unknown; the message suggests the nearest one.
    """
    names = [channel.name for channel in channels]
    if requested is not None:
        chosen = names if tuple(requested) == (ALL,) else requested
        for name in chosen:
            if name not in names:
                raise unknown_name("channel", name, [*names, ALL])
        return tuple(_one(channels, names.index(name)) for name in chosen)
    result: list[Panel] = []
    start = 0
    while start < len(channels):
        end, label = _alike(channels, start)
        if end - start < FEWEST:
            result.append(_one(channels, start))
            start += 1
            continue
        tails = tuple(name[len(label) :].lstrip("_") for name in names[start:end])
        result.append(Panel(label, channels[start].unit, tuple(range(start, end)), tails))
        start = end
    return tuple(result)


def measured_panels(
    channels: Sequence[Channel],
    bands: Mapping[str, tuple[float, float]],
    tracked: Mapping[str, str],
    requested: Sequence[str] | None,
) -> tuple[Panel, ...]:
    """Panels of the measurements.

    These are the requested channels if any; otherwise those with a limit or a setpoint; and if
    there are none of these, all channels in groups.
    """
    if requested is None:
        important = [c.name for c in channels if c.name in bands or c.name in tracked]
        requested = important or None
    return panels(channels, requested)


def _one(channels: Sequence[Channel], i: int) -> Panel:
    return Panel(channels[i].name, channels[i].unit, (i,))


def _alike(channels: Sequence[Channel], start: int) -> tuple[int, str]:
    """The end of a run of similar channels, and the common beginning of their names."""
    first = WORDS.split(channels[start].name)
    shared = len(first) - 1
    end = start + 1
    while end < len(channels) and channels[end].unit == channels[start].unit:
        name_parts = WORDS.split(channels[end].name)
        same = next(
            (i for i, (a, b) in enumerate(zip(name_parts, first, strict=False)) if a != b), 0
        )
        if len(name_parts) != len(first) or not same or (end > start + 1 and same < shared):
            break
        shared = min(shared, same)
        end += 1
    name = channels[start].name
    ends = [match.start() for match in WORDS.finditer(name)]
    return end, name[: ends[shared - 1]] if ends and shared else name


# A window that follows an episode.


class Window:
    """Shows images one after the other in a Matplotlib window.

    Without a display, Matplotlib has no windows (its backend is ``agg``), and the images are drawn
    but not visible.

    Example:
        >>> import matplotlib
        >>> import numpy as np
        >>> matplotlib.use("agg")
        >>> window = Window("reactor")
        >>> window.show(np.zeros((4, 6, 3), np.uint8))
        >>> window.close()
    """

    def __init__(self, title: str) -> None:
        """Creates a window that opens with the first image.

        Args:
            title: Title of the window.
        """
        self._title = title
        self._figure: Any = None
        self._image: Any = None

    def show(self, picture: UInt8[np.ndarray, "height width 3"]) -> None:
        """Replaces the image shown in the window."""
        from matplotlib import pyplot

        if self._figure is None:
            height, width = picture.shape[:2]
            self._figure = pyplot.figure(self._title, figsize=(width / 80, height / 80), dpi=80)
            axes = self._figure.add_axes((0, 0, 1, 1))
            axes.set_axis_off()
            self._image = axes.imshow(picture)
            if pyplot.get_backend().lower() != "agg":
                self._figure.show()
        self._image.set_data(picture)
        self._figure.canvas.draw_idle()
        self._figure.canvas.flush_events()

    def close(self) -> None:
        """Closes the window; a later image opens a new one."""
        from matplotlib import pyplot

        if self._figure is not None:
            pyplot.close(self._figure)
            self._figure = None


# Stacked trend plots like those on an operator's screen: measurements, limits, inputs, costs.


MEASURED, INPUT, COST, BEYOND = "#1f4e79", "#444444", "#b22222", "#f4c7c3"
SETPOINT = "#2e8b57"
LABELLED, FEW_NAMES = 12, 6  # most lines in a panel with a legend, and with a one-column legend
UNITS_OF_TIME = (
    (864_000.0, 86_400.0, "d"),
    (7200.0, 3600.0, "h"),
    (300.0, 60.0, "min"),
    (0.0, 1.0, "s"),
)


def trends(
    spec: Spec,
    trajectory: Trajectory,
    *,
    bands: Mapping[str, tuple[float, float]],
    tracked: Mapping[str, str] | None = None,
    channels: Sequence[str] | None = None,
    title: str = "",
    steps: int = 0,
) -> Figure:
    """Draws one episode.

    There is one panel for each measurement with a limit or a setpoint, in which the region beyond
    the limit is shaded and violations are marked. If a plant has neither, all measurements are
    drawn, with similar ones in one panel. Below are the applied inputs as step curves, with similar
    ones in one panel, and the costs.

    Args:
        spec: Channels and period.
        trajectory: One episode, host or JAX arrays; may be empty.
        bands: Lower and upper limits of observed channels by name; infinite for no limit.
        tracked: Channel of the setpoint, by the name of the channel that follows it.
        channels: Names of the measurements to draw, each in its own panel; ``("all",)`` draws all
            measurements and all inputs in panels of their own.
        title: Title above the panels.
        steps: Number of steps of the whole episode if it continues after ``trajectory``, which
            determines the unit of the time axis.

    Returns:
        The figure, ready to be saved or shown.

    Raises:
        ValueError: If a band or a setpoint names an unknown channel.
        InputError: If ``channels`` contains an unknown name; the message suggests the nearest one.
    """
    tracked = tracked or {}
    names = [channel.name for channel in spec.obs]
    unknown = sorted({*bands, *tracked, *tracked.values()} - set(names))
    if unknown:
        raise ValueError(f"no observed channel is called {unknown[0]!r}; expected one of {names}")
    measured_axes = measured_panels(spec.obs, bands, tracked, channels)
    inputs = panels(spec.action, (ALL,) if tuple(channels or ()) == (ALL,) else None)
    n_panels = len(measured_axes) + len(inputs) + bool(spec.n_cost)
    figure = Figure(figsize=(8, 1.25 * n_panels + 0.6), layout="constrained")
    axes = figure.subplots(n_panels, 1, sharex=True, squeeze=False)[:, 0]
    divisor, unit = _time_unit(max(len(trajectory.reward), steps) * spec.dt)
    time = np.arange(len(trajectory.reward)) * spec.dt / divisor
    after = time + spec.dt / divisor
    measured = np.asarray(trajectory.next_obs)
    for axis, panel in zip(axes, measured_axes, strict=False):
        if panel.label in tracked:
            setpoint = measured[:, names.index(tracked[panel.label])]
            axis.plot(after, setpoint, color=SETPOINT, lw=1, ls="--", label="setpoint")
            axis.legend(loc="upper left", fontsize="x-small")
        _group(axis, panel, after, measured, bands)
    for axis, panel in zip(axes[len(measured_axes) :], inputs, strict=False):
        _group(axis, panel, time, np.asarray(trajectory.action), {}, stepped=True)
    if spec.n_cost:
        for i, channel in enumerate(spec.cost):
            axes[-1].plot(after, np.asarray(trajectory.cost)[:, i], lw=1, label=channel.name)
        axes[-1].set_ylabel("cost")
        axes[-1].legend(loc="upper left", fontsize="x-small", ncols=spec.n_cost)
    axes[-1].set_xlabel(f"time [{unit}]")
    figure.suptitle(title)
    return figure


def _group(
    axis: Axes,
    panel: Panel,
    time: np.ndarray,
    columns: np.ndarray,
    bands: Mapping[str, tuple[float, float]],
    *,
    stepped: bool = False,
) -> None:
    """Draws one panel: a single channel with its limits, or one line for each of several."""
    axis.set_ylabel(f"{panel.label}\n[{panel.unit}]")
    style: Any = {"drawstyle": "steps-post"} if stepped else {}
    if not panel.names:
        y = columns[:, panel.channels[0]]
        if stepped:
            axis.plot(time, y, color=INPUT, lw=1, **style)
        else:
            _measurement(axis, time, y, *bands.get(panel.label, (-np.inf, np.inf)))
        return
    colours = colormaps["viridis"](np.linspace(0, 0.9, len(panel.channels)))
    for i, name, colour in zip(panel.channels, panel.names, colours, strict=True):
        axis.plot(time, columns[:, i], color=colour, lw=0.8, label=name, **style)
    if len(panel.names) <= LABELLED:
        columns_of_names = 1 if len(panel.names) <= FEW_NAMES else 2
        axis.legend(
            loc="center left", bbox_to_anchor=(1, 0.5), fontsize="x-small", ncols=columns_of_names,
            frameon=False, handlelength=1, columnspacing=0.8, labelspacing=0.2,
        )  # fmt: skip


def picture(figure: Figure, *, dpi: int = 80) -> UInt8[np.ndarray, "height width 3"]:
    """The figure as an array of bytes: red, green, blue."""
    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def png(figure: Figure, *, dpi: int = 80) -> bytes:
    """The figure as the bytes of a PNG file."""
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=dpi)
    return target.getvalue()


def _measurement(panel: Axes, time: np.ndarray, y: np.ndarray, low: float, high: float) -> None:
    panel.plot(time, y, color=MEASURED, lw=1)
    finite = [limit for limit in (low, high) if np.isfinite(limit)]
    if finite and len(y):
        panel.set_ylim(*_window(min(y.min(), *finite), max(y.max(), *finite)))
    bottom, top = panel.get_ylim()
    for limit, end in ((low, bottom), (high, top)):
        if np.isfinite(limit):
            panel.axhspan(min(limit, end), max(limit, end), color=BEYOND, lw=0, zorder=0)
            panel.axhline(limit, color=COST, lw=0.8, ls="--")
    outside = (y < low) | (y > high)
    panel.plot(time[outside], y[outside], ".", color=COST, ms=3)


def _window(bottom: float, top: float) -> tuple[float, float]:
    margin = 0.08 * (top - bottom) or 1.0
    return bottom - margin, top + margin


def _time_unit(seconds: float) -> tuple[float, str]:
    return next((divisor, unit) for least, divisor, unit in UNITS_OF_TIME if seconds >= least)


# Writes an episode as an animated GIF.


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


# Compares several episodes by their returns and costs.


def compare(
    spec: Spec, trajectories: Mapping[str, Trajectory], *, weights: Mapping[str, float], unit: str
) -> Figure:
    """Plots return against penalised cost of every trajectory, with a table of costs and limits.

    Args:
        spec: Channels and period.
        trajectories: At least one episode, by the name of its policy.
        weights: Reward subtracted for one unit of each cost, by name; zero for a cost that is not
            listed.
        unit: Unit of the reward.

    Returns:
        The figure.

    Raises:
        ValueError: If there is no trajectory, or a weight names an unknown cost.
    """
    if not trajectories:
        raise ValueError("nothing to compare: give at least one trajectory")
    names = [channel.name for channel in spec.cost]
    unknown = sorted(set(weights) - set(names))
    if unknown:
        raise ValueError(f"no cost is called {unknown[0]!r}; expected one of {names}")
    figure = Figure(figsize=(9, 3.2 + 0.28 * len(trajectories)), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.4))
    penalty = np.asarray([weights.get(name, 0.0) for name in names])
    rows = []
    for name, trajectory in trajectories.items():
        total = float(np.asarray(trajectory.reward).sum())
        costs = np.asarray(trajectory.cost).reshape(len(trajectory.reward), len(names)).sum(axis=0)
        left.plot(float(penalty @ costs), total, "o", label=name)
        violated = [f"{cost:.3g}" for cost in costs]
        rows.append([name, f"{total:.4g}", *violated, str(len(trajectory.reward))])
    left.set_xlabel(f"penalty for the costs [{unit}]")
    left.set_ylabel(f"return [{unit}]")
    left.legend(fontsize="x-small")
    right.set_axis_off()
    limits = ["limit", "", *(f"{c.limit:g} {c.unit} per {c.per}" for c in spec.cost), ""]
    right.table(
        cellText=[*rows, limits], colLabels=["", f"return [{unit}]", *names, "steps"], loc="center"
    )
    return figure


# Draws a treasure hunt: the content of each cell, and the agents.


COLOURS = ("#f3e9d2", "#5c5346", "#2a9d8f", "#e9a23b", "#f7f7f5", "#264653")
"""Colours of empty cells, walls, gems, food, bones and agents."""

NAMES = ("empty", "wall", "gem", "food", "bone", "agent")


def grid_picture(
    cells: Int[np.ndarray, "row column"], positions: Int[np.ndarray, "agent 2"], *, title: str = ""
) -> Figure:
    """Draws one state of a hunt, with a legend and the numbers of the agents.

    Args:
        cells: Content of each cell (``HuntState.grid`` without its margin): 0 empty, 1 wall,
            2 gem, 3 food, 4 bone, 5 agent.
        positions: Row and column of each agent.
        title: Title above the plot.

    Returns:
        The figure, which is neither shown nor written.

    Raises:
        ValueError: If the content of a cell is unknown, or an agent is outside the grid.
    """
    cells, positions = np.asarray(cells), np.asarray(positions)
    if cells.ndim != 2 or cells.min() < 0 or cells.max() >= len(COLOURS):
        raise ValueError(
            f"cells must be a table of numbers from 0 to {len(COLOURS) - 1}, got shape "
            f"{cells.shape}; take the margin off a grid with HuntState.grid[r:-r, r:-r]"
        )
    if len(positions) and (positions.min() < 0 or (positions >= cells.shape).any()):
        raise ValueError(f"agents must stand within {cells.shape}, got {positions.tolist()}")
    figure = Figure(figsize=(1.5 + 0.28 * cells.shape[1], 0.6 + 0.28 * cells.shape[0]))
    axes: Any = figure.add_subplot()
    axes.imshow(cells, cmap=ListedColormap(COLOURS), vmin=0, vmax=len(COLOURS) - 1)
    for number, (row, column) in enumerate(positions.tolist()):
        axes.text(column, row, str(number), color="white", ha="center", va="center", fontsize=8)
    present = sorted({*np.unique(cells).tolist()} - {0})
    marks = [axes.scatter([], [], marker="s", c=COLOURS[i], edgecolors="#888888") for i in present]
    axes.legend(
        marks,
        [NAMES[i] for i in present],
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        frameon=False,
    )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title)
    return figure
