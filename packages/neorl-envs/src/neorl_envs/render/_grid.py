"""Draws a treasure hunt: the content of each cell, and the agents."""

from typing import Any

import numpy as np
from jaxtyping import Int
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

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
