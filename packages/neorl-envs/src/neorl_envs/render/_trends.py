"""Stacked trends as on an operator's screen: measurements, limits, inputs, costs."""

import io
from collections.abc import Mapping

import numpy as np
from jaxtyping import UInt8
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from neorl_core import Spec, Trajectory

MEASURED, INPUT, COST, BEYOND = "#1f4e79", "#444444", "#b22222", "#f4c7c3"
UNITS_OF_TIME = ((7200.0, 3600.0, "h"), (300.0, 60.0, "min"), (0.0, 1.0, "s"))


def trends(
    spec: Spec,
    trajectory: Trajectory,
    *,
    bands: Mapping[str, tuple[float, float]],
    title: str = "",
    steps: int = 0,
) -> Figure:
    """Draws one episode.

    A panel for each measurement with a limit, with what lies beyond the limit shaded and marked
    where it happens; a panel for each input, as the steps that were applied; one for the costs.

    Args:
        spec: Channels and period.
        trajectory: One episode, host or JAX arrays; may be empty.
        bands: Lower and upper limit of observed channels by name; infinite where there is none.
        title: Above the panels.
        steps: Steps of the whole episode where it goes on after ``trajectory``; decides the unit
            of the time axis.

    Returns:
        The figure, ready to be saved or shown.

    Raises:
        ValueError: If a band names no observed channel.
    """
    names = [channel.name for channel in spec.obs]
    unknown = sorted(set(bands) - set(names))
    if unknown:
        raise ValueError(f"no observed channel is called {unknown[0]!r}; expected one of {names}")
    chosen = [i for i, name in enumerate(names) if name in bands] or list(range(len(names)))
    n_panels = len(chosen) + spec.n_action + bool(spec.n_cost)
    figure = Figure(figsize=(8, 1.25 * n_panels + 0.6), layout="constrained")
    panels = figure.subplots(n_panels, 1, sharex=True, squeeze=False)[:, 0]
    divisor, unit = _time_unit(max(len(trajectory.reward), steps) * spec.dt)
    time = np.arange(len(trajectory.reward)) * spec.dt / divisor
    after = time + spec.dt / divisor
    for panel, i in zip(panels, chosen, strict=False):
        channel = spec.obs[i]
        measured = np.asarray(trajectory.next_obs)[:, i]
        _measurement(panel, after, measured, *bands.get(channel.name, (-np.inf, np.inf)))
        panel.set_ylabel(f"{channel.name}\n[{channel.unit}]")
    for panel, (i, channel) in zip(panels[len(chosen) :], enumerate(spec.action), strict=False):
        panel.step(time, np.asarray(trajectory.action)[:, i], where="post", color=INPUT, lw=1)
        panel.set_ylabel(f"{channel.name}\n[{channel.unit}]")
    if spec.n_cost:
        for i, channel in enumerate(spec.cost):
            panels[-1].plot(after, np.asarray(trajectory.cost)[:, i], lw=1, label=channel.name)
        panels[-1].set_ylabel("cost")
        panels[-1].legend(loc="upper left", fontsize="x-small", ncols=spec.n_cost)
    panels[-1].set_xlabel(f"time [{unit}]")
    figure.suptitle(title)
    return figure


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
    beyond = (y < low) | (y > high)
    panel.plot(time[beyond], y[beyond], ".", color=COST, ms=3)


def _window(bottom: float, top: float) -> tuple[float, float]:
    margin = 0.08 * (top - bottom) or 1.0
    return bottom - margin, top + margin


def _time_unit(seconds: float) -> tuple[float, str]:
    return next((divisor, unit) for least, divisor, unit in UNITS_OF_TIME if seconds >= least)
