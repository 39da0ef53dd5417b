"""The plant model on the page of a choice: its checks, and figures with the log."""

from typing import Any

import numpy as np

from neorl_agents.retuning import SURE
from neorl_core.statistics import rank_correlation
from neorl_train.choosing._model_check import PlantModelCheck, predicted_sums
from neorl_train.choosing._model_trust import Check
from neorl_train.judging._wording import DASH, number, percent
from neorl_train.pages import _style
from neorl_train.pages._html import (
    Column,
    Html,
    Section,
    bullets,
    join,
    paragraph,
    table,
    tag,
)
from neorl_train.pages._style import (
    CLASSICAL,
    LEARNERS,
    MUTED,
    missing,
    new_figure,
    picture,
    time_axis,
)

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
    predicted, logged = predicted_sums(check.free), check.free.outcome_logged
    everything = np.concatenate([predicted, logged])
    # Of a cost that is the same in every episode, the picture would be one dot.
    shown = [j for j in range(len(names)) if j == 0 or np.ptp(everything[:, j]) != 0]
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    figure = new_figure(3.0 * rows)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in axes[len(shown) :]:
        panel.set_visible(False)
    for j, panel in zip(shown, axes, strict=False):
        both = everything[:, j]
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


CHECKS_TEXT = (
    "Every episode on this page was left out of the fit. The checks 'model' replay the controller "
    "that runs today in these episodes, or in its own if the log says which they are; the model's "
    "error in every logged step is added to its predictions. The check 'held-out mode' predicts "
    "another controller of the log in a model fitted without its episodes. All other predictions "
    "start from the first row and use only the logged actions and the channels that are not "
    "predicted."
)


def model_sections(check: PlantModelCheck) -> list[Section]:
    """The sections of a page that show whether the model may be used."""
    pictures = [] if _style.installed() else [missing()]
    return [
        (
            "checks",
            "May the plant model be used?",
            join([*pictures, paragraph(CHECKS_TEXT), _checks(check)]),
        ),
        ("sums", "Return and costs of whole episodes", _sums(check)),
        ("replayed", "The controllers that recorded the log", _replay_table(check)),
        ("held-out-modes", "Controllers that were left out of the fit", _held_out(check)),
        ("episodes", "Predicted episodes", _episodes(check)),
        ("ahead", "Prediction errors several steps ahead", _ahead(check)),
        ("model", "The model", _model(check)),
        ("interlocks", "The declared interlocks", _interlocks(check)),
    ]


def _checks(check: PlantModelCheck) -> Html:
    rows = [
        [result.name, mark(result), tag("span", result.sentence, class_="words")]
        for result in check.checks
    ]
    columns = [Column("Check", align="left"), Column("Holds"), Column("Result", align="left")]
    caption = (
        "The model may be used unless a check fails (\N{MULTIPLICATION X}). An exclamation mark is "
        "a warning that does not decide: a quantity that only noise causes, such as a cost of rare "
        "peaks, is missing in a smooth prediction, and present again when logged episodes are "
        "replayed. If the controller that runs today is not known, there is no check 'model', and "
        "the return predicted from the logged actions decides."
    )
    return table(caption, columns, rows)


def mark(check: Check) -> str:
    """The symbol for one check: passed, worth a look, or failed."""
    if check.holds:
        return "\N{CHECK MARK}"
    return "\N{MULTIPLICATION X}" if check.decides else "!"


def _rank_correlation(predicted: Any, logged: Any) -> str:
    """A dash if one of them is the same in all episodes, which then have no order."""
    value = float(rank_correlation(predicted, logged))
    return DASH if np.isnan(value) else number(value)


def _replay_table(check: PlantModelCheck) -> Html:
    """One table row per controller; nothing if none is known."""
    if not check.replayed:
        return Html("")
    outcomes = [("return", check.reward_unit), *((c.name, c.unit) for c in check.spec.cost)]
    columns = [Column("Controller", align="left"), Column("Episodes")]
    columns += [Column(f"{name}, predicted / logged", unit) for name, unit in outcomes]
    rows = [
        [
            controller.name,
            str(controller.episodes),
            *(
                f"{number(float(a))} / {number(float(b))}"
                for a, b in zip(controller.predicted, controller.logged, strict=True)
            ),
        ]
        for controller in check.replayed
    ]
    text = (
        "Every controller replays its own episodes, with the model's error in each logged step "
        "added. Manual holds and test signals of operators are in the log but are not replayed, so "
        "a prediction that is somewhat better than the log is not an error of the model."
    )
    return join([paragraph(text), table("Means over episodes.", columns, rows)])


def _held_out(check: PlantModelCheck) -> Html:
    """One table row per controller that was left out of the fit; nothing if none was."""
    if not check.held_out:
        return Html("")
    outcomes = [("return", check.reward_unit), *((c.name, c.unit) for c in check.spec.cost)]
    columns = [Column("Controller", align="left"), Column("Episodes", "logged / replayed")]
    columns += [Column(f"{name}, predicted / expected", unit) for name, unit in outcomes]
    columns += [Column("Error of the return", "of the difference"), Column("Distance", "from data")]
    rows = [
        [
            mode.name,
            f"{mode.outcome.episodes} / {mode.episodes}",
            *(
                f"{number(float(a))} / {number(float(b))} \N{PLUS-MINUS SIGN} {number(float(c))}"
                for a, b, c in zip(
                    mode.predicted, mode.outcome.expected, SURE * mode.chance, strict=True
                )
            ),
            percent(mode.share),
            number(mode.outside),
        ]
        for mode in check.held_out
    ]
    text = (
        "For each row, a further model was fitted without any episode of this controller. It acted "
        "in held-out episodes of the others, with their starts and residuals, as a candidate does "
        "that never recorded anything. Expected is what the log shows of it without its "
        "operators: the mean of its replayed own episodes in the model of the whole log, corrected "
        "by all its logged episodes. After the sign stand 1.96 standard errors of the difference "
        "of the two, by which the error is reduced before it is divided by the difference between "
        "the best and the worst controller. A controller whose distance from the data of the "
        "others, in standard deviations per step, is more than the rule of the choice allows would "
        "be refused as a candidate; its error does not count."
    )
    return join([paragraph(text), table("Means over episodes.", columns, rows)])


def _sums(check: PlantModelCheck) -> Html:
    text = (
        "Each point is one episode. Points on the line are predicted exactly; a cloud beside the "
        "line means that the model has the same error everywhere."
    )
    predicted, logged = predicted_sums(check.free), check.free.outcome_logged
    worst = np.argsort(-np.abs(predicted[:, 0] - logged[:, 0]))[:2]
    text += " Of the return, predicted worst are " + " and ".join(
        f"{number(float(predicted[i, 0]))} where the log shows {number(float(logged[i, 0]))}"
        for i in worst
    )
    text += "."
    outcomes = [("return", check.reward_unit), *((c.name, c.unit) for c in check.spec.cost)]
    rows = [
        [
            name,
            number(float(logged[:, j].mean())),
            number(float(predicted[:, j].mean())),
            number(float(np.sqrt(np.mean((predicted[:, j] - logged[:, j]) ** 2)))),
            number(float(check.free.spread[j])),
            _rank_correlation(predicted[:, j], logged[:, j]),
            unit,
        ]
        for j, (name, unit) in enumerate(outcomes)
    ]
    columns = [
        Column("Sum over an episode", align="left"),
        Column("Logged", "mean"),
        Column("Predicted", "mean"),
        Column("Error", "root mean square"),
        Column("Spread", "between all episodes"),
        Column("Order", "rank correlation"),
        Column("Unit", align="left"),
    ]
    return join(
        [
            picture(sums_figure, check, name="sums", caption=text),
            table(
                "Sums of reward and costs over the episodes that were left out of the fit.",
                columns,
                rows,
            ),
        ]
    )


def _episodes(check: PlantModelCheck) -> Html:
    channels = list(check.predicted)
    names = [channel.name for channel in check.spec.obs]
    at = [names.index(name) for name in channels]
    errors_by_step = check.free.obs[:-1].mean(axis=0) - check.free.logged
    spread = check.free.logged.std(axis=(0, 1)) + 1e-12
    errors = np.sqrt(np.mean((errors_by_step / spread)[..., at] ** 2, axis=(1, 2)))
    order = np.argsort(np.nan_to_num(errors, nan=np.inf))
    parts = []
    for title, episode in (
        ("A typical episode (median error)", int(order[len(order) // 2])),
        ("The episode that the model predicts worst", int(order[-1])),
    ):
        text = (
            "Blue: the mean of the networks, with the range between them. Grey: the log. The "
            "predicted channels that move most are shown."
        )
        parts.append(tag("h3", title))
        parts.append(
            picture(episode_figure, check, episode, name=f"episode-{episode}", caption=text)
        )
    return join(parts)


def _ahead(check: PlantModelCheck) -> Html:
    ahead = check.ahead
    text = (
        f"Root mean square error over {ahead.windows} windows of the log, in standard deviations "
        "of each channel. Dashed: the error of the prediction that nothing changes. A model is "
        "useful as far ahead as its line stays below the dashed one."
    )
    steps = [0, len(ahead.steps) // 2, len(ahead.steps) - 1]
    rows = [
        [name, *(f"{ahead.networks[k, i]:.3f} / {ahead.unchanged[k, i]:.3f}" for k in steps)]
        for i, name in enumerate(check.predicted)
    ]
    columns = [
        Column("Channel", align="left"),
        *(
            Column(f"{ahead.steps[k]} step{'s' * (ahead.steps[k] > 1)}", "model / no change")
            for k in steps
        ),
    ]
    return join(
        [
            picture(ahead_figure, check, name="ahead", caption=text),
            table("Errors in standard deviations of each channel.", columns, rows),
        ]
    )


def _model(check: PlantModelCheck) -> Html:
    exogenous = ", ".join(check.exogenous) or "none"
    return bullets(
        [
            f"fitted to {check.fitted} episodes, checked on {len(check.free.lengths)} others",
            f"reads the last {check.history} step{'s' * (check.history > 1)}",
            f"predicts {', '.join(check.predicted)}",
            f"reads from the log, because no controller influences them: {exogenous}",
            "consists of a linear part, fitted by ridge regression, and three networks that learn "
            "its residual",
        ]
    )


def _interlocks(check: PlantModelCheck) -> Html:
    """One table row per interlock; nothing if none is declared."""
    if not check.interlocks:
        return Html("")
    text = (
        "In every prediction these rules of plant.toml override the action of the controller. A "
        "row of the log contradicts one if its condition holds and the logged action differs from "
        "what it sets by more than 0.5 % of the range."
    )
    columns = [Column("Interlock", align="left"), Column("What it does", align="left")]
    columns += [Column("Active", "rows"), Column("Active", "episodes")]
    columns += [Column("Contradicted by the log", "rows")]
    rows = [
        [
            interlock["name"],
            interlock["sentence"],
            f"{interlock['active']} of {interlock['rows']}",
            str(interlock["episodes"]),
            str(sum(entry["rows"] for entry in interlock["contradictions"])),
        ]
        for interlock in check.interlocks
    ]
    return join([paragraph(text), table("Interlocks, in their order.", columns, rows)])
