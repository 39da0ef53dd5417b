"""The tables: every policy and every classical controller, with intervals and units."""

from collections.abc import Callable, Sequence

from neorl_core.costs import limit_kind
from neorl_train.judging._results import ActionFit
from neorl_train.judging._tables import CostCell, PolicyRow, PooledRow, ResultTables
from neorl_train.judging._wording import (
    DASH,
    confidence,
    decimals,
    difference,
    finest,
    fraction_interval,
    interval,
    percent,
    sign_digits,
    significant,
    with_decimals,
    with_interval,
    with_sign,
)
from neorl_train.pages._html import Column, Content, Group, Html, join, paragraph, table, tag
from neorl_train.pages._inputs import Inputs

ROLES = {
    "learner": "Learned policies",
    "classical": "The plant's controllers",
    "behaviour": "Behaviour in the log",
    "log": "Behaviour in the log",
}


def display(row: PolicyRow, tables: ResultTables) -> Html:
    """Readable name of a policy, with its part in the verdict."""
    name = row.name
    if row.role == "log":
        name = "recorded log"
    if row.role == "behaviour":
        name = "behaviour, re-run"
    notes = []
    if row.name == tables.candidate and row.guarded:
        notes.append("candidate")
    if row.name == tables.reference and not row.guarded:
        notes.append("today's")
    badges = [tag("span", note, class_="badge") for note in notes]
    return join([tag("span", name), *badges])


def group_rows(rows: Sequence[PolicyRow]) -> list[PolicyRow | Group]:
    """The rows with a heading before each kind of policy."""
    listed_rows: list[PolicyRow | Group] = []
    title = ""
    for row in sorted(rows, key=lambda row: (list(ROLES).index(row.role), row.name)):
        if ROLES[row.role] != title:
            title = ROLES[row.role]
            listed_rows.append(Group(title))
        listed_rows.append(row)
    return listed_rows


def return_table(tables: ResultTables) -> Html:
    """Table of return, gain over the reference, spread and length."""
    unit, level = tables.reward_unit, confidence(tables.level)
    simulated = bool(tables.environment)
    columns = [
        Column("Policy", align="left"),
        Column("Guard", align="left"),
        Column("Return", f"{unit}, mean [{level}]"),
        *([Column(f"Gain over {tables.reference}", f"{unit}, paired [{level}]")] * simulated),
        Column("Std", unit),
        Column("Least", unit),
        Column("Most", unit),
        Column("Length", f"steps, mean [{level}]"),
        Column("Std", "steps"),
    ]
    digits = decimals(row.returns for row in tables.rows)
    rows = _group_cells(tables, lambda row: _return_cells(row, tables, digits))
    where = (
        f"over {tables.n_starts} paired episodes; for the recorded log, over its own episodes"
        if simulated
        else f"over {tables.n_starts} episodes in {tables.judge}; the log's over its own"
        if tables.judge
        else "over the episodes of the log"
    )
    return table(f"Return of an episode: {where}.", columns, rows)


def _group_cells(
    tables: ResultTables, cells: Callable[[PolicyRow], Sequence[Content]]
) -> list[Sequence[Content] | Group]:
    return [row if isinstance(row, Group) else cells(row) for row in group_rows(tables.rows)]


def _name_cells(row: PolicyRow, tables: ResultTables) -> list[Content]:
    return [display(row, tables), "yes" if row.guarded else "no"]


def _return_cells(row: PolicyRow, tables: ResultTables, digits: int) -> list[Content]:
    gain, steps = row.difference, decimals([row.length], most=1)
    paired = DASH if gain is None else difference(gain, digits, space=" ")
    return [
        *_name_cells(row, tables),
        with_interval(row.returns, digits),
        *([paired] * bool(tables.environment)),
        with_decimals(row.return_std, digits),
        with_decimals(row.return_min, digits),
        with_decimals(row.return_max, digits),
        with_interval(row.length, max(steps, 1)),
        f"{row.length_std:.1f}",
    ]


def ending_table(tables: ResultTables) -> Html:
    """Table of how episodes ended, how many kept every limit, and how often the guard acted."""
    level = confidence(tables.level)
    columns = [
        Column("Policy", align="left"),
        Column("Guard", align="left"),
        Column("Success", f"of episodes [{level}]"),
        Column("Trips", "episodes"),
        Column("Kept every limit", f"of episodes [{level}]"),
        Column("Changed by the guard", "of steps"),
        Column("Fallback acted", "of steps"),
    ]
    caption = (
        "How the episodes ended. The intervals of counted fractions are exact (Clopper-Pearson)."
    )
    return table(caption, columns, _group_cells(tables, lambda row: _ending_cells(row, tables)))


def _ending_cells(row: PolicyRow, tables: ResultTables) -> list[Content]:
    trips = f"{row.n_trips} of {row.n_episodes}"
    return [
        *_name_cells(row, tables),
        DASH if row.success is None else fraction_interval(row.success),
        DASH if row.trips is None else tag("span", trips, class_="fails") if row.n_trips else trips,
        fraction_interval(row.satisfied),
        percent(row.filtered) if row.guarded else DASH,
        percent(row.fallback) if row.guarded else DASH,
    ]


def cost_table(tables: ResultTables, position: int) -> Html:
    """Table of one cost for every policy: the limited quantity and the number of violations."""
    channel = tables.spec.cost[position]
    level = confidence(tables.level)
    kind = limit_kind(channel)
    columns = [
        Column("Policy", align="left"),
        Column("Guard", align="left"),
        Column(kind.quantity.capitalize(), f"{channel.unit}, mean [{level}]"),
        Column("Largest", f"{channel.unit}, of all episodes"),
        Column("Above the limit", "episodes"),
        Column("Probability of a violation", f"per episode [{level}]"),
        Column("Steps", kind.counted_rows),
    ]
    cells = [row.costs[position] for row in tables.rows]
    digits = finest(cell.limited for cell in cells)
    rows = _group_cells(tables, lambda row: _cost_cells(row, row.costs[position], tables, digits))
    caption = (
        f"Cost {channel.name}: limit {kind.limit_words(channel.limit, channel.unit)}. The interval "
        "of the probability of a violation is exact (Clopper-Pearson)."
    )
    return table(caption, columns, rows)


def _cost_cells(row: PolicyRow, cell: CostCell, tables: ResultTables, digits: int) -> list[Content]:
    count = f"{cell.violations} of {row.n_episodes}"
    return [
        *_name_cells(row, tables),
        with_interval(cell.limited, digits),
        with_decimals(cell.largest, digits),
        tag("span", count, class_="fails") if cell.violations else count,
        fraction_interval(cell.violating),
        f"{cell.steps_over:,}".replace(",", "\N{THIN SPACE}"),
    ]


def pooled_table(tables: ResultTables) -> Html:
    """Table of each algorithm's pooled seeds against the logged behaviour and the reference."""
    unit, level = tables.reward_unit, confidence(tables.level)
    columns = [
        Column("Seeds of", align="left"),
        Column("Guard", align="left"),
        Column("Against", align="left"),
        Column("Gain, these seeds", f"{unit}, paired [{level}]"),
        Column("Gain, fresh seeds", f"{unit} [{level}]"),
        *(
            Column(f"Cost {channel.name}", f"{channel.unit}; upper bounds: seeds, other")
            for channel in tables.spec.cost
        ),
        Column("Better", align="left"),
    ]
    digits = decimals(row.difference for row in tables.pooled)
    order = sorted(tables.pooled, key=lambda row: (row.against_role, row.group, row.guarded))
    return table(
        "Seeds are pooled start by start; below each gain are the gains of the single seeds. "
        "Better: the interval of the gain (these seeds) lies above zero, and no cost is higher "
        "than that of the policy it is compared with (upper ends of the intervals).",
        columns,
        [_pooled_cells(row, digits) for row in order],
    )


def _pooled_cells(row: PooledRow, digits: int) -> list[Content]:
    against = row.against
    gain, fresh = difference(row.difference, digits, space=" "), row.fresh_seeds
    seeds = " ".join(with_sign(seed.value, digits) for seed in row.each_seed)
    return [
        f"{row.group} ({len(row.seeds)})",
        "yes" if row.guarded else "no",
        against,
        join([gain, tag("span", seeds, class_="detail")]),
        DASH if fresh is None else interval(fresh, sign_digits(fresh, digits)),
        *(f"{cost.mean.high:.3g}, {cost.other.high:.3g}" for cost in row.costs),
        tag("span", "yes", class_="holds") if row.better else "no",
    ]


def imitation_table(inputs: Inputs) -> Html:
    """Each policy's actions compared with the logged ones, on episodes not used for training."""
    fits = inputs.evaluation.imitation
    level = confidence(inputs.evaluation.tables.level)
    columns = [
        Column("Policy", align="left"),
        Column("Action", align="left"),
        Column("Unit", align="left"),
        Column("Mean distance", f"[{level}]"),
        Column("Std of the logged action"),
        Column("Variance explained"),
        Column("Farther than a straight line", f"paired [{level}]"),
        Column("Episodes"),
    ]
    rows: list[Sequence[Content] | Group] = []
    for fit in fits:
        digits = decimals([fit.difference])
        explained = DASH if fit.explained != fit.explained else with_decimals(fit.explained, 3)
        rows.append(
            [
                fit.policy,
                fit.channel,
                fit.unit,
                with_interval(fit.difference, digits),
                significant(fit.deviation),
                explained,
                _beyond_line(fit),
                str(fit.n_episodes),
            ]
        )
    return table(
        "Distance of each policy's action to the logged one, in shadow on held-out episodes. This "
        "shows how similarly they act, not how well. The variance explained is below zero where "
        "the log's mean action is closer. The straight line is a linear feedback of the same "
        "measurements; red means that the line is closer to the log, compared episode by episode.",
        columns,
        rows,
    )


def _beyond_line(fit: ActionFit) -> Content:
    beyond = fit.beyond_line
    if beyond is None:
        return DASH
    text = difference(beyond, decimals([beyond]))
    return tag("span", text, class_="fails") if fit.worse_than_line else text


def score_line(inputs: Inputs) -> Html:
    """The normalised score of the log, if the benchmark's formula is known."""
    score = inputs.evaluation.score
    if score is None:
        return Html("")
    digits = decimals([score.log])
    return paragraph(
        f"By the formula of {score.benchmark}, 100 (R {DASH} {score.low:g}) / "
        f"({score.high:g} {DASH} {score.low:g}), the log itself scores "
        f"{with_interval(score.log, digits)} points."
    )
