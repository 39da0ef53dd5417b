"""Travel of the actuators and steadiness of the plant, in the stored episodes."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from neorl_core.costs import limit_kind
from neorl_train.judging._results import SMALLEST, Trace
from neorl_train.judging._tables import AmountKind
from neorl_train.judging._wording import DASH, with_ends
from neorl_train.pages._html import Column, Content, Group, Html, fold, join, table
from neorl_train.pages._inputs import Inputs
from neorl_train.pages.sections._benefit import amount_table
from neorl_train.pages.sections._pictures import TITLES, other_policy

HEADINGS: dict[AmountKind, str] = {
    "travel": "Travel of the actuators",
    "reversals": "Reversals of the actuators",
    "beyond": "Time beyond a limit",
}


def movement_table(inputs: Inputs) -> Html:
    """Travel and reversals of every actuator, spread of measurements, and time beyond limits.

    The first table covers all episodes, with intervals. Collapsed below it is one table for each
    stored episode: the candidate compared with the other policy from the same start.
    """
    evaluation = inputs.evaluation
    shown = [
        trace
        for trace in evaluation.traces
        if trace.policy == evaluation.tables.candidate and trace.label in TITLES
    ]
    single = [
        _table(trace, other_policy(evaluation.traces, trace), inputs)
        for trace in shown
        if trace.applied.size
    ]
    where = f"sums over an episode, mean over all {evaluation.tables.n_starts} starts"
    if not inputs.simulated:
        where = "sums over an episode, mean over all episodes of the log"
    caption = (
        f"Movement of the actuators: {where}. A move of less than {SMALLEST:.1%} of a range does "
        "not count as a reversal."
    )
    parts = [amount_table(inputs, HEADINGS, caption), _predictions(inputs)]
    if single:
        parts.append(fold("Show the tables of the episodes in the pictures", *single))
    return join([part for part in parts if part.text])


def _predictions(inputs: Inputs) -> Html:
    """The predictions of the plant model of a log; nothing if there are none."""
    predicted, verdict = inputs.record.get("predicted_movement", []), inputs.verdict
    if inputs.simulated or not predicted:
        return Html("")
    headings = {
        "travel": "Mean travel of the actuators per step",
        "deviation": "Standard deviation of the measurements within an episode",
    }
    rows: list[Sequence[Content] | Group] = []
    for kind, heading in headings.items():
        rows.append(Group(heading))
        rows += [
            [
                one["name"],
                one["unit"],
                *(with_ends(*one[who]) for who in ("candidate", "incumbent")),
            ]
            for one in predicted
            if one["kind"] == kind
        ]
    columns = [
        Column("Channel", align="left"),
        Column("Unit", align="left"),
        Column(verdict.candidate, "predicted"),
        Column(verdict.reference, "predicted"),
    ]
    caption = (
        "Predicted by the plant model of the log, in the same replayed episodes for both. In "
        "brackets: the 95 % interval over episodes and the networks of the model."
    )
    return table(caption, columns, rows)


def _table(first: Trace, other: Trace | None, inputs: Inputs) -> Html:
    spec = inputs.evaluation.tables.spec
    both = [trace for trace in (first, other) if trace is not None]

    def row(name: str, unit: str, number: Callable[[Trace], float]) -> list[Content]:
        return [
            name,
            unit,
            *(f"{number(trace):.4g}" for trace in both),
            *[DASH] * (2 - len(both)),
        ]

    rows: list[Sequence[Content] | Group] = [Group("Mean travel of the actuators per step")]
    for i, channel in enumerate(spec.action):
        rows.append(row(channel.name, channel.unit, lambda t, i=i: travel(t.applied[:, i])))
    rows.append(Group("Reversals of the actuators"))
    for i, channel in enumerate(spec.action):
        smallest = SMALLEST * (channel.high - channel.low)
        rows.append(
            row(
                channel.name,
                "per 100 steps",
                lambda t, i=i, smallest=smallest: 100 * reversals(t.applied[:, i], smallest),
            )
        )
    rows.append(Group("Standard deviation of the measurements"))
    for i, channel in enumerate(spec.obs):
        rows.append(row(channel.name, channel.unit, lambda t, i=i: float(t.obs[:, i].std())))
    kinds = [limit_kind(channel) for channel in spec.cost]
    if any(channel.per == "step" for channel in spec.cost):
        rows.append(Group("Time beyond a limit"))
        rows += [
            row(
                f"{channel.name}, {kind.limit_words(channel.limit, channel.unit)}",
                "min",
                lambda t, j=j, limit=channel.limit: float(
                    (t.cost[:, j] > limit).sum() * spec.dt / 60
                ),
            )
            for j, (channel, kind) in enumerate(zip(spec.cost, kinds, strict=True))
            if channel.per == "step"
        ]
    columns = [
        Column("Channel", align="left"),
        Column("Unit", align="left"),
        Column(first.policy, "with its guard"),
        Column("no other policy" if other is None else other.policy, "on the same start"),
    ]
    title = TITLES.get(first.label, first.label)
    caption = (
        f"{title}: values of this single episode of {len(first.reward)} steps. A move of less than "
        f"{SMALLEST:.1%} of a range does not count as a reversal."
    )
    return table(caption, columns, rows)


def travel(action: Float[np.ndarray, " time"]) -> float:
    """Mean distance between consecutive actions; zero for a single action.

    Example:
        >>> travel(np.array([0.0, 2.0, 1.0]))
        1.5
    """
    return float(np.abs(np.diff(action)).mean()) if len(action) > 1 else 0.0


def reversals(action: Float[np.ndarray, " time"], smallest: float = 0.0) -> float:
    """Fraction of the steps in which an action reverses; moves of at most ``smallest`` are ignored.

    Example:
        >>> reversals(np.array([0.0, 1.0, 1.0, 0.0, 2.0]))
        0.4
    """
    moves = np.diff(action)
    directions = np.sign(moves[np.abs(moves) > smallest])
    return float((directions[1:] != directions[:-1]).sum() / len(action)) if len(action) else 0.0
