"""The first section: what to do, and the numbers behind the decision."""

from collections.abc import Mapping
from html import escape
from typing import Any

from neorl_train.judging._pool import RESIDUAL, RETUNED, recorded_family
from neorl_train.judging._tables import Estimate, ResultTables
from neorl_train.judging._verdict import DEPLOY, REFUSE, TRIAL, Clause, Verdict, closing, parts
from neorl_train.judging._wording import (
    confidence,
    decimals,
    fraction_interval,
    interval,
    number,
    percent,
    short,
    sign_digits,
    significant,
    with_decimals,
    with_ends,
    with_sign,
    with_unit,
)
from neorl_train.pages._html import (
    Column,
    Content,
    Html,
    bullets,
    join,
    paragraph,
    table,
    tag,
)
from neorl_train.pages._inputs import Inputs, chosen_lines
from neorl_train.pages._terminal import SCORED
from neorl_train.pages.sections._loop_change import loop_lines

_MARKS = {
    DEPLOY: ("yes", "\N{CHECK MARK}"),
    TRIAL: ("unknown", "\N{RIGHTWARDS ARROW}"),
    REFUSE: ("no", "\N{MULTIPLICATION X}"),
}
_WIDTH, _HEIGHT = 190, 26


def headline(inputs: Inputs) -> Html:
    """The verdict in one phrase, one sentence and the reasons that decided it."""
    verdict = inputs.verdict
    further = [paragraph(line) for line in chosen_lines(inputs.run, verdict)]
    on_log = bool(verdict.clauses) and not inputs.simulated
    text = _log_text(inputs) if on_log else _plant_text(verdict)
    kind, mark = _MARKS.get(verdict.answer, ("unknown", "?"))
    answer = verdict.answer
    if inputs.evaluation.tables.judge and not verdict.clauses:
        answer, mark = SCORED, "\N{BULLET}"
    return tag(
        "div",
        tag("span", mark, class_="mark", aria_hidden="true"),
        tag("div", paragraph(answer, class_="answer"), *text, *further),
        class_=f"verdict {kind}",
        id="verdict",
        role="status",
    )


def _log_text(inputs: Inputs) -> list[Html]:
    """A verdict on a log: what would change and what it brings, or the clauses that fail.

    The sentence of the verdict names all clauses; the table below shows them with their numbers.
    """
    verdict = inputs.verdict
    if verdict.answer == TRIAL:
        family = recorded_family(inputs.record, verdict.candidate)
        lines = inputs.record.get("changes", []) if family in (RETUNED, RESIDUAL) else []
        gain = next(clause for clause in verdict.clauses if clause.name == "return")
        gain_words = with_ends(gain.value, gain.low, gain.high)
        lines = [
            *(f"{line[0].upper()}{line[1:]}" for line in lines),
            *(line for change in inputs.loops for line in loop_lines(change)),
            *([] if inputs.loops else _movement_lines(inputs.record)),
            f"Predicted gain in return over {verdict.reference}: "
            f"{with_unit(gain_words, gain.unit)} per episode",
        ]
    else:
        lines = [clause.sentence for clause in verdict.clauses if not clause.holds]
    return [paragraph(f"{parts(verdict)[0]}."), bullets(lines), paragraph(closing(verdict))]


def _movement_lines(record: Mapping[str, Any]) -> list[str]:
    """What a change brings and costs by the plant model, where no change sheet says it."""
    lines = []
    for row in record.get("predicted_movement", []):
        before, after = row["incumbent"][0], row["candidate"][0]
        ends = f"{short(before)} to {with_ends(*row['candidate'])} {row['unit']}"
        if row["kind"] == "error":
            lines.append(f"{row['name']}, mean size of setpoint minus measurement: {ends}")
        if row["kind"] == "travel" and before > 0:
            lines.append(
                f"{row['name']} moves {significant(after / before, 2)} times as much: {ends} a step"
            )
    return [f"{line}, predicted" for line in lines]


def _plant_text(verdict: Verdict) -> list[Content]:
    """What may be done, the clauses that decided it as a list, and what follows them."""
    opening, reasons, rest = parts(verdict)
    lines: list[Content] = [paragraph(f"{opening}:" if reasons else opening)]
    lines += [bullets(reasons)] if reasons else []
    return [*lines, paragraph(rest)] if rest else lines


def clause_table(verdict: Verdict, level: float | None = None) -> Html:
    """Every condition with its numbers; a figure shows interval and limit on one scale.

    ``level`` is ``None`` for predictions, whose intervals have none.
    """
    columns = [
        Column("Clause", align="left"),
        Column("Holds", align="left"),
        Column(f"Estimate with {'its' if level is None else f'{confidence(level)}'} interval"),
        Column("Must hold"),
        Column("Interval and limit", align="left"),
    ]
    return table(
        f"{'For a trial' if level is None else 'To deploy'}, every clause must hold. The end of "
        "the interval that is worse for the policy is compared with the limit.",
        columns,
        [_row(clause) for clause in verdict.clauses],
    )


def _row(clause: Clause) -> list[Content]:
    estimate = Estimate(clause.value, clause.low, clause.high)
    digits = sign_digits(estimate, decimals([estimate]))
    sign = "\N{GREATER-THAN SIGN}" if clause.relation == ">" else "\N{LESS-THAN OR EQUAL TO}"
    estimate_words = f"{with_decimals(clause.value, digits)} {interval(estimate, digits)}"
    bound = with_decimals(clause.bound, digits)
    if not clause.low < clause.high:  # a worst case has no width that would tell the digits
        estimate_words, bound = significant(clause.value), short(clause.bound, beside=clause.limit)
    limit = with_unit(number(clause.limit), clause.unit)
    required = f"{bound} {sign} {limit}"
    if clause.is_share:
        estimate_words = fraction_interval(estimate)
        required = f"{percent(clause.bound)} {sign} {percent(clause.limit)}"
    mark = "\N{CHECK MARK} yes" if clause.holds else "\N{MULTIPLICATION X} no"
    return [
        join([tag("strong", clause.name), tag("span", clause.statistic, class_="detail")]),
        tag("span", mark, class_="holds" if clause.holds else "fails"),
        tag("span", with_unit(estimate_words, clause.unit), class_="wraps"),
        tag("span", required, class_="wraps"),
        clause_picture(clause),
    ]


def clause_picture(clause: Clause) -> Html:
    """Draws the interval as a bar, the estimate as a dot and the limit as a line on one scale."""
    shown = [clause.low, clause.high, clause.limit, clause.bound, 0.0]
    finite = [value for value in shown if abs(value) < float("inf")]
    low, high = min(finite), max(finite)
    pad = 0.06 * (high - low) or 1.0
    low, high = low - pad, high + pad

    def at(value: float) -> str:
        inside = min(max(value, low), high) if value == value else high
        return f"{8 + (_WIDTH - 16) * (inside - low) / (high - low):.1f}"

    is_upper_limit = clause.relation == "<="
    begin, end = (at(clause.limit), str(_WIDTH)) if is_upper_limit else ("0", at(clause.limit))
    kind = "holds" if clause.holds else "fails"
    middle = _HEIGHT / 2
    parts = [
        f'<rect class="beyond" x="{begin}" y="0" width="{float(end) - float(begin):.1f}" '
        f'height="{_HEIGHT}"/>',
        f'<line class="limit" x1="{at(clause.limit)}" x2="{at(clause.limit)}" y1="0" '
        f'y2="{_HEIGHT}"/>',
        f'<line class="bar {kind}" x1="{at(clause.low)}" x2="{at(clause.high)}" y1="{middle}" '
        f'y2="{middle}"/>',
        f'<circle class="dot {kind}" cx="{at(clause.value)}" cy="{middle}" r="4"/>',
    ]
    if clause.bound not in (clause.low, clause.high):
        parts.append(
            f'<circle class="largest {kind}" cx="{at(clause.bound)}" cy="{middle}" r="3.5"/>'
        )
    alt = f"{clause.name}: {clause.sentence}"
    return Html(
        f'<svg class="clause" role="img" aria-label="{escape(alt)}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}">{"".join(parts)}</svg>'
    )


def _reference_note(tables: ResultTables) -> str:
    rows = [row for row in tables.rows if row.name == tables.reference and not row.guarded]
    return f"; {tables.reference}: {percent(rows[0].satisfied.value)}" if rows else ""


def tiles(inputs: Inputs) -> Html:
    """The four numbers that interest an engineer most."""
    tables = inputs.evaluation.tables
    row = tables.row(tables.candidate, guarded=True)
    gain = row.difference or Estimate(*[float("nan")] * 3)
    digits = sign_digits(gain, decimals([gain]))
    interval_words = f"{confidence(tables.level)} interval"
    violations = sum(cell.violations for cell in row.costs)
    facts = [
        (
            f"{with_sign(gain.value, digits)} {tables.reward_unit}",
            f"return per episode against {tables.reference}, {interval_words} "
            f"{interval(gain, digits)}",
        ),
        (
            percent(row.satisfied.value),
            f"of {row.n_episodes} episodes kept every limit, {interval_words} "
            f"[{percent(row.satisfied.low)}, {percent(row.satisfied.high)}]"
            + ("" if violations else "; no limit was broken")
            + _reference_note(tables),
        ),
        (
            str(row.n_trips),
            f"trips in {row.n_episodes} episodes"
            + (
                f", {interval_words} [{percent(row.trips.low)}, {percent(row.trips.high)}]"
                if row.trips
                else ""
            ),
        ),
        (
            percent(row.filtered + row.fallback),
            "of the steps were changed by the guard; in "
            f"{percent(row.fallback)} of the steps its fallback acted",
        ),
    ]
    return tag(
        "div",
        *(tag("div", tag("strong", value), tag("span", label)) for value, label in facts),
        class_="tiles",
    )
