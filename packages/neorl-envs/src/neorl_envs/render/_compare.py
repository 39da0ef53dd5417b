"""Compares several episodes by their returns and costs."""

from collections.abc import Mapping

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from neorl_core import Spec, Trajectory


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
