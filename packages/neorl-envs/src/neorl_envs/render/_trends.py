"""Stacked trend plots like those on an operator's screen: measurements, limits, inputs, costs."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt8
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from neorl_core import Spec, Trajectory
from neorl_envs.render._panels import ALL, Panel, measured_panels, panels

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
