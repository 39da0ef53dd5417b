"""Figures for pages as SVG that adopts the page's colours, font, and light or dark mode.

Matplotlib is imported only where a figure is drawn, and only when it is.
"""

import io
import math
import re
from collections.abc import Sequence
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure import install_line
from neorl_train.pages._html import Html, figure, paragraph, tag

INSTALL = install_line("neorl-train[report]")

INK, MUTED, GRID = "#111213", "#707172", "#d1d2d3"
LIMIT, CLASSICAL, SURFACE = "#b2182b", "#5b6471", "#fdfdfe"
LEARNERS = ("#0072b2", "#d55e01", "#009e73", "#aa4499", "#8c6d1f", "#56b4e9")
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    LIMIT: "--limit",
    CLASSICAL: "--pid",
    SURFACE: "--surface",
    **{colour: f"--c{i}" for i, colour in enumerate(LEARNERS)},
}
WIDTH = 11.0  # inches; one inch is about 100 px on a laptop
UNITS_OF_TIME = ((4 * 3600.0, 3600.0, "h"), (300.0, 60.0, "min"), (0.0, 1.0, "s"))
SVG_DPI = 72  # at which matplotlib writes SVG and measures its text
_STYLE: Any = {
    "figure.autolayout": False,
    "figure.constrained_layout.use": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "neorl",
    "font.family": "sans-serif",
    "font.size": 10.0,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
}


def installed() -> bool:
    """Whether matplotlib is installed."""
    import importlib.util

    return importlib.util.find_spec("matplotlib") is not None


def new_figure(height: float, *, width: float = WIDTH, layout: Any = "constrained") -> Any:
    """An empty figure in the style of the report; inches, by default as wide as the page.

    ``layout`` is ``None`` for a figure that places its panels itself: measuring all labels to make
    room for them takes longer than drawing them.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        return Figure(figsize=(width, height), layout=layout)


def svg_figure(draw: Any, *arguments: Any, name: str, alt: str, **options: Any) -> str:
    """Draws a figure in the style of the report and returns it as inline SVG.

    ``name`` is unique on the page, which prevents clashes between the identifiers of two figures;
    ``alt`` describes the figure to people who cannot see it.
    """
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    target = io.StringIO()
    figure = draw_styled(draw, *arguments, **options)
    with matplotlib.rc_context(_STYLE):
        # savefig would lay the figure out by drawing all of it once more, only to throw that away.
        FigureCanvasSVG(figure)
        figure.dpi = SVG_DPI
        if figure.get_layout_engine() is not None:
            figure.get_layout_engine().execute(figure)
            figure.set_layout_engine(None)
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None})
    return inline(target.getvalue(), name=name, alt=alt)


def draw_styled(draw: Any, *arguments: Any, **options: Any) -> Any:
    """The figure that ``draw`` returns, drawn in the style of the report."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        return draw(*arguments, **options)


def inline(svg: str, *, name: str, alt: str) -> str:
    """Adapts an SVG file for use in a page: unique identifiers, the page's colours, a title."""
    from html import escape

    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
    body = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', body)
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, f"var({variable})")
    view = re.search(r'viewBox="([^"]+)"', body)
    opening = (
        f'<svg role="img" aria-labelledby="{name}-title" '
        f'viewBox="{view[1] if view else "0 0 1 1"}">'
        f'<title id="{name}-title">{escape(alt)}</title>'
    )
    return opening + body[body.index(">") + 1 :].strip()


def time_axis(steps: int, dt: float) -> tuple[float, str]:
    """Converts seconds to a suitable unit of the time axis; also returns the unit."""
    return next((seconds, unit) for least, seconds, unit in UNITS_OF_TIME if steps * dt >= least)


def duration(steps: int, dt: float, axis: int = 0) -> str:
    """A number of steps as time, in the unit of a time axis, so that text and picture agree.

    Args:
        steps: Number of steps.
        dt: Seconds of a step.
        axis: Number of steps that the axis covers; by default ``steps``.

    Example:
        >>> duration(50, 600.0), duration(10, 600.0, axis=50)
        ('8.33 h', '1.67 h')
    """
    seconds, unit = time_axis(max(steps, axis), dt)
    return f"{steps * dt / seconds:.3g} {unit}"


def window(values: Sequence[float], *, margin: float = 0.08) -> tuple[float, float]:
    """The ends of an axis that shows all finite values with a margin."""
    finite = [float(value) for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    pad = margin * (high - low) or max(abs(high) * margin, 1e-6)
    return low - pad, high + pad


def colours(groups: Sequence[str]) -> dict[str, str]:
    """One colour for each algorithm, in order of appearance."""
    names = list(dict.fromkeys(groups))
    return {name: LEARNERS[i % len(LEARNERS)] for i, name in enumerate(names)}


def missing() -> Html:
    """What to install to get figures."""
    return paragraph(
        "Pictures need matplotlib: ",
        tag("code", INSTALL),
        ", then write the report again. All numbers are in the tables.",
        class_="note",
    )


def picture(draw: Any, *arguments: Any, name: str, caption: str) -> Html:
    """A figure with its caption, also for who cannot see it; nothing if it cannot be drawn."""
    if not installed():
        return Html("")
    svg = Html(svg_figure(draw, *arguments, name=name, alt=caption))
    return figure(svg, caption)


def require_matplotlib() -> None:
    """Says what to install if figures cannot be drawn."""
    if not installed():
        raise InputError(f"pictures need matplotlib: {INSTALL}")
