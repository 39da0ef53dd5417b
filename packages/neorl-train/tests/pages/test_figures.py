"""A figure of the report is laid out once and drawn once, as matplotlib itself would draw it."""

import io

import numpy as np
import pytest

from neorl_train.pages import _style

matplotlib = pytest.importorskip("matplotlib", reason="needs the extra 'report'")


def two_rows():
    """Titles, labels beside the panels, and a legend outside, which all need room."""
    figure = _style.new_figure(3.0)
    for row, panel in enumerate(figure.subplots(2, 1, sharex=True)):
        panel.plot(np.arange(9.0) ** 3 * 1e3, label=f"line {row}")
        panel.set_title("level [m]", loc="left")
        panel.annotate("limit", xy=(1.0, 4.0), xycoords=("axes fraction", "data"))
    figure.legend(loc="outside upper left", ncols=2)
    return figure


def test_it_is_drawn_once_and_as_by_matplotlib(monkeypatch) -> None:
    from matplotlib.figure import Figure

    target, figure = io.StringIO(), _style.draw_styled(two_rows)
    with matplotlib.rc_context(_style._STYLE):
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None})
    expected = _style.inline(target.getvalue(), name="a", alt="two rows")
    draw, draws = Figure.draw, []

    def counted(figure, renderer):
        draws.append(1)
        return draw(figure, renderer)

    monkeypatch.setattr(Figure, "draw", counted)
    assert _style.svg_figure(two_rows, name="a", alt="two rows") == expected
    assert sum(draws) == 1
