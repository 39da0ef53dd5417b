"""The safety report as one HTML page, for a plant engineer."""

from collections.abc import Sequence

from neorl_train.judging._safety_findings import WITH, Assessment, Constraint, Metrics, Violations
from neorl_train.judging._tables import Estimate
from neorl_train.judging._wording import (
    DASH,
    confidence,
    decimals,
    fixed,
    fraction_interval,
    number,
    percent,
    with_interval,
)
from neorl_train.pages._document import Section, document
from neorl_train.pages._html import (
    Column,
    Content,
    Group,
    Html,
    bullets,
    joined,
    paragraph,
    table,
    tag,
)
from neorl_train.pages._safety_text import (
    CONDITIONS,
    GUARANTEE,
    NOT_CLAIMED,
    answer,
    headline,
    scope,
)
from neorl_train.pages.figures import _style
from neorl_train.pages.figures._safety import case_figure, overview
from neorl_train.pages.sections._pictures import missing, picture

TIERS = {
    "hard": "Hard: must hold",
    "soft": "Soft: counted against a budget",
    "preference": "Preferences: spare the actuators",
}


def page(assessment: Assessment) -> str:
    """The report as one HTML document without scripts or external references."""
    kind, mark = ("no", "\N{MULTIPLICATION X}") if assessment.broken else ("yes", "\N{CHECK MARK}")
    header = [
        tag("p", "neorl \N{MIDDLE DOT} safety report", class_="over"),
        tag("h1", f"Does {assessment.policy} keep its limits on {assessment.where}?"),
        tag(
            "div",
            tag("span", mark, class_="mark", aria_hidden="true"),
            tag(
                "div", tag("p", answer(assessment), class_="answer"), tag("p", headline(assessment))
            ),
            class_=f"verdict {kind}",
            id="verdict",
            role="status",
        ),
    ]
    sections = [part for part in _sections(assessment) if part[2].text]
    return document(f"Safety of {assessment.policy} on {assessment.where}", header, sections)


def _sections(assessment: Assessment) -> list[Section]:
    return [
        ("scope", "Scope", bullets(list(scope(assessment)))),
        ("violations", "Violations, constraint by constraint", _violations(assessment)),
        ("interventions", "What the filter did, and why", _interventions(assessment)),
        ("cases", "Worst cases, as on the operator's screen", _cases(assessment)),
        ("monitors", "Alarms of the monitors", _monitors(assessment)),
        ("metrics", "All metrics", _metrics(assessment)),
        ("guarantee", "What is guaranteed, and under which conditions", _guarantee(assessment)),
    ]


def _violations(assessment: Assessment) -> Html:
    words = (
        "Left: fraction of the episodes in which each constraint was broken, with its exact "
        "interval; hard constraints in red. Right: how often the filter moved each channel, and "
        "how far."
    )
    parts: list[Content] = []
    if _style.installed():
        parts.append(picture(overview, assessment, name="overview", alt=words, caption=words))
    else:
        parts.append(missing())
    parts.append(_violation_table(assessment))
    if assessment.quiet:
        parts.append(
            paragraph(
                f"Constraints that were not active in any step: {', '.join(assessment.quiet)}.",
                class_="note",
            )
        )
    return joined(parts)


def _violation_table(assessment: Assessment) -> Html:
    level = confidence(assessment.level)
    columns = [
        Column("Constraint", align="left"),
        Column("Who acted", align="left"),
        Column("Episodes", f"with a violation [{level}, exact]"),
        Column("Steps", "with a violation"),
        Column("Longest", "s"),
        Column("Deepest", "in the unit of the constraint"),
        Column("Mean depth", "of violating steps"),
    ]
    rows: list[Sequence[Content] | Group] = []
    for tier, title in TIERS.items():
        tier_constraints = [
            constraint for constraint in assessment.constraints if constraint.tier == tier
        ]
        rows += [Group(title)] if tier_constraints else []
        for constraint in tier_constraints:
            rows += [
                _violation_row(constraint, label, part)
                for label, part in constraint.violations.items()
            ]
    return table(
        "Count, duration and depth of every violation. A count of zero is not a proof: the "
        "interval states how often a violation may still happen.",
        columns,
        rows,
    )


def _violation_row(constraint: Constraint, label: str, part: Violations) -> list[Content]:
    first = label == next(iter(constraint.violations))
    name = joined([tag("span", constraint.name), tag("span", constraint.words, class_="detail")])
    bad = bool(part.steps) and constraint.tier == "hard" and label == WITH
    fraction = fraction_interval(part.episode_fraction)
    return [
        name if first else "",
        label,
        tag("span", f"{part.episodes}: {fraction}", class_="fails" if bad else "right"),
        f"{part.steps} ({percent(part.step_fraction)})",
        f"{part.longest:g}",
        f"{number(part.largest)} {constraint.unit}" if part.steps else DASH,
        f"{number(part.mean)} {constraint.unit}" if part.steps else DASH,
    ]


def _interventions(assessment: Assessment) -> Html:
    channels = [
        Column("Action", align="left"),
        Column("Moved", "of steps"),
        Column("Mean move"),
        Column("95 % below"),
        Column("Largest"),
        Column("Relative to its range", "largest"),
        Column("Limits that were active", "of steps", align="left"),
    ]
    rows: list[Sequence[Content] | Group] = [
        [
            f"{row.channel} [{row.unit}]",
            percent(row.changed),
            number(row.mean),
            number(row.p95),
            number(row.largest),
            percent(row.largest / row.span),
            ", ".join(f"{name} {percent(fraction)}" for name, fraction in row.limits.items())
            or DASH,
        ]
        for row in assessment.interventions
    ]
    reasons = [
        Column("Reason", align="left"),
        Column("Steps", "of all"),
        Column("Episodes"),
        Column("Flag", align="left"),
    ]
    listed: list[Sequence[Content] | Group] = [
        [row.words, percent(row.steps), str(row.episodes), row.flag] for row in assessment.reasons
    ]
    return joined(
        [
            paragraph(
                f"The filter changed the policy's action in {percent(assessment.changed)} of the "
                f"steps; in {percent(assessment.fallback)} its fallback acted instead."
            ),
            table("How far each action was moved.", channels, rows),
            table("Why: decisions of the guard, the most frequent first.", reasons, listed),
        ]
    )


def _cases(assessment: Assessment) -> Html:
    parts: list[Content] = []
    for number_, case in enumerate(assessment.cases):
        words = (
            f"{case.title}. Shaded: beyond a limit. Dotted: ends of the actuator. Last panel on "
            "the right: when the filter changed the action, and when the fallback acted."
        )
        parts.append(tag("h3", case.title))
        parts.append(
            picture(case_figure, case, assessment, name=f"case{number_}", alt=words, caption=words)
        )
    return joined(parts)


def _monitors(assessment: Assessment) -> Html:
    columns = [
        Column("Monitor", align="left"),
        Column("Promised", "false alarms, of episodes"),
        Column("Alarmed", f"of episodes [{confidence(assessment.level)}]"),
        Column("Before a violation", "of episodes with a violation"),
        Column("Lead", "median, s"),
    ]
    rows: list[Sequence[Content] | Group] = [
        [
            joined([tag("span", monitor.name), tag("span", monitor.words, class_="detail")]),
            DASH if monitor.promised is None else f"at most {percent(monitor.promised)}",
            fraction_interval(monitor.episodes),
            f"{monitor.before_violation} of {monitor.violating}",
            DASH if monitor.lead is None else f"{monitor.lead:g}",
        ]
        for monitor in assessment.monitors
    ]
    promise = (
        "A promise holds for episodes like those that the threshold was calibrated on; see each "
        "monitor."
    )
    return table(promise, columns, rows) if rows else Html("")


def _metrics(assessment: Assessment) -> Html:
    columns = [Column("Metric", align="left"), *(Column(name) for name in assessment.metrics)]
    rows: list[Sequence[Content] | Group] = []
    for field, words in METRICS.items():
        values = [getattr(metrics, field) for metrics in assessment.metrics.values()]
        rows.append(
            [words.format(unit=assessment.unit), *(_cell(field, value) for value in values)]
        )
    return table(
        f"Means and fractions with {confidence(assessment.level)} intervals: exact for fractions "
        "(Clopper-Pearson), by a bootstrap over the episodes for means.",
        columns,
        rows,
    )


METRICS = {
    "episodes": "Episodes",
    "return_mean": "Return, mean [{unit}]",
    "return_std": "Return, standard deviation",
    "return_min": "Return, minimum",
    "return_max": "Return, maximum",
    "length_mean": "Length, mean [steps]",
    "length_std": "Length, standard deviation",
    "violations": "Violating steps, hard and soft",
    "violations_per_episode": "Violating steps per episode, mean",
    "critical_violations": "Violating steps, hard",
    "shutdowns": "Shutdowns (trips), of episodes",
    "satisfaction": "Episodes that kept every hard and soft constraint",
    "success": "Success, of episodes",
}
FRACTIONS = {"shutdowns", "satisfaction", "success"}
assert set(METRICS) == set(Metrics.__dataclass_fields__)


def _cell(field: str, value: object) -> str:
    if value is None:
        return DASH
    if isinstance(value, Estimate):
        if field in FRACTIONS:
            return fraction_interval(value)
        return with_interval(value, max(decimals([value]), 1))
    return f"{value}" if isinstance(value, int) else fixed(float(str(value)), 2)


def _guarantee(assessment: Assessment) -> Html:
    return joined(
        [
            paragraph("For this policy the filter keeps:"),
            bullets(list(assessment.demands)),
            paragraph("This means:"),
            bullets(list(GUARANTEE)),
            paragraph("This holds under the following conditions:"),
            bullets(list(CONDITIONS)),
            paragraph("Monitors and supervision:"),
            bullets(list(assessment.supervision)),
            paragraph("What is not claimed:"),
            bullets(list(NOT_CLAIMED)),
        ]
    )
