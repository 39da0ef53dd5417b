"""Travel of the actuators and steadiness of the plant, in the stored episodes."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from neorl_core.costs import limit_kind
from neorl_train.report._html import Column, Content, Group, Html, folded, joined, table
from neorl_train.report._inputs import Inputs
from neorl_train.report.sections._benefit import amount_table
from neorl_train.report.sections._pictures import TITLES, other_policy
from neorl_train.results._episodes import SMALLEST, Trace
from neorl_train.results._tables import AmountKind
from neorl_train.results._wording import DASH

MOVES: dict[AmountKind, str] = {
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
    ours = [
        one
        for one in evaluation.traces
        if one.policy == evaluation.tables.candidate and one.label in TITLES
    ]
    single = [
        _table(one, other_policy(evaluation.traces, one), inputs)
        for one in ours
        if one.applied.size
    ]
    where = f"sums over an episode, mean over all {evaluation.tables.n_starts} starts"
    if not inputs.simulated:
        where = "sums over an episode of the log, mean over all of them"
    caption = (
        f"How much the plant was moved: {where}. A move of less than {SMALLEST:.1%} of a range "
        "does not count as a reversal."
    )
    parts = [amount_table(inputs, MOVES, caption)]
    if single:
        parts.append(folded("Show the single episodes that are drawn", *single))
    return joined([part for part in parts if part.text])


def _table(ours: Trace, theirs: Trace | None, inputs: Inputs) -> Html:
    spec = inputs.evaluation.tables.spec
    shown = [one for one in (ours, theirs) if one is not None]

    def row(name: str, unit: str, number: Callable[[Trace], float]) -> list[Content]:
        return [name, unit, *(f"{number(one):.4g}" for one in shown), *[DASH] * (2 - len(shown))]

    rows: list[Sequence[Content] | Group] = [Group("Travel of the actuators, a step on average")]
    for i, channel in enumerate(spec.action):
        rows.append(row(channel.name, channel.unit, lambda t, i=i: travel(t.applied[:, i])))
    rows.append(Group("Reversals of the actuators"))
    for i, channel in enumerate(spec.action):
        least = SMALLEST * (channel.high - channel.low)
        rows.append(
            row(
                channel.name,
                "of 100 steps",
                lambda t, i=i, least=least: 100 * reversals(t.applied[:, i], least),
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
        Column(ours.policy, "with its guard"),
        Column("no other policy" if theirs is None else theirs.policy, "on the same start"),
    ]
    title = TITLES.get(ours.label, ours.label)
    caption = (
        f"{title}: this one episode of {len(ours.reward)} steps, no mean over starts. A move of "
        f"less than {SMALLEST:.1%} of a range does not count as a reversal."
    )
    return table(caption, columns, rows)


def travel(action: Float[np.ndarray, " time"]) -> float:
    """Mean distance between consecutive actions; zero for a single action.

    Example:
        >>> travel(np.array([0.0, 2.0, 1.0]))
        1.5
    """
    return float(np.abs(np.diff(action)).mean()) if len(action) > 1 else 0.0


def reversals(action: Float[np.ndarray, " time"], least: float = 0.0) -> float:
    """Fraction of the steps in which an action reverses; moves of at most ``least`` are ignored.

    Example:
        >>> reversals(np.array([0.0, 1.0, 1.0, 0.0, 2.0]))
        0.4
    """
    moves = np.diff(action)
    directions = np.sign(moves[np.abs(moves) > least])
    return float((directions[1:] != directions[:-1]).sum() / len(action)) if len(action) else 0.0
