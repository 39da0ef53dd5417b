"""Figures that compare a plant model with the log."""

from typing import Any

import numpy as np

from neorl_train.choosing._model_check import PlantModelCheck, predicted_sums
from neorl_train.pages.figures._style import CLASSICAL, LEARNERS, MUTED, new_figure, time_axis

CHANNELS = 6
"""Largest number of channels in one figure."""


def ahead_figure(check: PlantModelCheck) -> Any:
    """Errors of every predicted channel several steps ahead: networks, linear part, no change."""
    shown = check.predicted[: 2 * CHANNELS]
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    figure = new_figure(2.0 * rows + 0.6)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
    ahead = check.ahead
    seconds, unit = time_axis(ahead.steps[-1], check.spec.dt)
    time = np.asarray(ahead.steps) * check.spec.dt / seconds
    for i, panel in enumerate(axes):
        panel.set_visible(i < len(shown))
        if i >= len(shown):
            continue
        panel.plot(time, ahead.unchanged[:, i], color=MUTED, ls=(0, (4, 2)), label="no change")
        panel.plot(time, ahead.linear[:, i], color=CLASSICAL, label="linear part")
        panel.plot(time, ahead.networks[:, i], color=LEARNERS[0], label="model")
        panel.set_title(shown[i], fontsize=10, loc="left")
        panel.set_xscale("log")
        panel.set_ylim(0, max(1.2, 1.05 * float(np.nanmin(ahead.networks[-1:, i]))))
        panel.set_xlabel(f"time ahead [{unit}]" if i >= len(shown) - columns else "")
    axes[0].set_ylabel("error [deviations]")
    axes[0].legend(fontsize=8)
    return figure


def sums_figure(check: PlantModelCheck) -> Any:
    """Predicted against logged return and costs of every episode."""
    names = ["return", *(channel.name for channel in check.spec.cost)]
    units = [check.reward_unit, *(channel.unit for channel in check.spec.cost)]
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = new_figure(3.0 * rows)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    predicted, logged = predicted_sums(check.free), check.free.outcome_logged
    for j, panel in enumerate(axes):
        panel.set_visible(j < len(names))
        if j >= len(names):
            continue
        both = np.concatenate([predicted[:, j], logged[:, j]])
        ends = [float(np.nanmin(both)), float(np.nanmax(both))]
        panel.plot(ends, ends, color=MUTED, lw=1.0)
        panel.plot(logged[:, j], predicted[:, j], "o", ms=4, color=LEARNERS[0], alpha=0.7)
        panel.set_title(
            f"{names[j]} [{units[j]}]" if units[j] else names[j], fontsize=10, loc="left"
        )
        panel.set_xlabel("logged")
        panel.set_ylabel("predicted")
    return figure


def episode_figure(check: PlantModelCheck, episode: int) -> Any:
    """One episode: the log, and the prediction of every network from its first row on."""
    free, spec = check.free, check.spec
    names = [channel.name for channel in spec.obs]
    # Channels that contribute most to what the model must predict are the most informative.
    order = sorted(
        check.predicted,
        key=lambda name: -float(np.ptp(free.logged[episode, :, names.index(name)])
                                / (np.std(free.logged[..., names.index(name)]) + 1e-12)),
    )  # fmt: skip
    shown = order[:CHANNELS]
    length = int(free.lengths[episode])
    seconds, unit = time_axis(length, spec.dt)
    time = np.arange(1, length + 1) * spec.dt / seconds
    figure = new_figure(1.4 * len(shown) + 0.6)
    axes = figure.subplots(len(shown), 1, sharex=True, squeeze=False).ravel()
    for panel, name in zip(axes, shown, strict=True):
        i = names.index(name)
        networks = free.obs[:-1, episode, :length, i]
        low, high = networks.min(axis=0), networks.max(axis=0)
        panel.fill_between(time, low, high, color=LEARNERS[0], alpha=0.25, lw=0)
        panel.plot(time, networks.mean(axis=0), color=LEARNERS[0], label="model")
        panel.plot(time, free.logged[episode, :length, i], color=CLASSICAL, lw=1.2, label="log")
        unit_of = spec.obs[i].unit
        panel.set_title(f"{name} [{unit_of}]" if unit_of else name, fontsize=10, loc="left")
    axes[0].legend(fontsize=8, ncols=2)
    axes[-1].set_xlabel(f"time [{unit}]")
    return figure
