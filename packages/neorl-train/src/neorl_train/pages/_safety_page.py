"""The safety report as one HTML page, for a plant engineer."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neorl_core import InputError
from neorl_core.infrastructure import head, replacing, write_json, write_text
from neorl_train.judging._results import Band, to_plain
from neorl_train.judging._safety_findings import (
    LOGGED,
    WITH,
    WITHOUT,
    Assessment,
    Case,
    ConstraintColumn,
    SafetyRow,
    Violations,
)
from neorl_train.judging._tables import Estimate
from neorl_train.judging._wording import (
    DASH,
    confidence,
    decimals,
    enumeration,
    fraction_interval,
    number,
    percent,
    with_decimals,
    with_interval,
)
from neorl_train.pages import _style
from neorl_train.pages._html import (
    Column,
    Content,
    Group,
    Html,
    Section,
    bullets,
    join,
    page_with_answer,
    paragraph,
    table,
    tag,
)
from neorl_train.pages._style import (
    CLASSICAL,
    GRID,
    INK,
    LEARNERS,
    LIMIT,
    SURFACE,
    missing,
    new_figure,
    picture,
)
from neorl_train.pages.sections._trends import trends

PASSED, FAILED = "no hard constraint was broken", "a hard constraint was broken"
PASSED_ON_A_LOG = "no hard constraint of the action was broken; a log does not show costs"
UNSEEN = (
    " This applies only to its actions: a log does not show which costs, states and trips they "
    "would have led to."
)
GUARANTEE = (
    "Every action that leaves the filter is a finite number in the range of its actuator, whatever "
    "the policy, the sensors or the fallback return.",
    "It lies within the declared limits and differs from the action that the plant received last "
    "by no more than the declared rate in one control period; from outside the limits it returns "
    "at that rate.",
    "A tripped interlock and every linear or barrier row hold, or the step reports that they could "
    "not be kept (interval_empty, rows_infeasible) and the fallback acts.",
    "A request that keeps all limits passes unchanged; every change has a reason in the report.",
)
CONDITIONS = (
    "the compiled program treats NaN correctly, which a bundle tests when it is loaded;",
    "in every step it receives the action that the plant received, or the information that it is "
    "unknown;",
    "no other program or person writes to the actuator between two steps;",
    "it is called once per control period, never earlier;",
    "the limits are the single-precision numbers nearest to those declared.",
)
NOT_CLAIMED = (
    "The state of the plant is not guaranteed: violations of temperatures, pressures and levels "
    "are counted here, but not excluded. Barrier rows bound the prediction of a model, not the "
    "plant.",
    "Measurements that are finite and plausible but wrong are not detected unless a monitor covers "
    "them.",
    "This is supervisory control and not a protection layer; the protection of people and plant "
    "remains in an independent system with its own sensors, logic and final elements.",
)


def answer(assessment: Assessment) -> str:
    """The result in a few words; for a log it covers only actions."""
    if assessment.broken:
        return FAILED
    return PASSED if assessment.simulated else PASSED_ON_A_LOG


def headline(assessment: Assessment) -> str:
    """The result in one sentence, and for a log a second one on what remains open."""
    episodes = next(iter(assessment.metrics.values())).n_episodes
    where = f"in {episodes} episodes of {assessment.where}"
    unseen = "" if assessment.simulated else UNSEEN
    if assessment.broken:
        texts = [
            f"{constraint.name} in {constraint.violations[WITH].episodes} episodes"
            for constraint in assessment.broken
        ]
        return (
            f"{assessment.policy} broke hard constraints with the filter on: {enumeration(texts)}, "
            f"{where}.{unseen}"
        )
    active = assessment.constraints
    counted = [one for one in active if one.tier == "hard" and WITH in one.violations]
    worst = max(
        (constraint.violations[WITH].episode_fraction.high for constraint in counted), default=0.0
    )
    violated_without = sum(
        constraint.violations[WITHOUT].steps > 0
        for constraint in counted
        if WITHOUT in constraint.violations
    )
    qualification = "" if assessment.simulated else " of the action in the situations of the log"
    return (
        f"With the filter on, {assessment.policy} broke no hard constraint{qualification} {where}; "
        f"without it, {violated_without or 'none'} of the {len(counted)} active hard constraints "
        "were broken. An event that was counted zero times may still happen in up to "
        f"{percent(worst)} of such episodes ({confidence(assessment.level)}, exact).{unseen}"
    )


def scope(assessment: Assessment) -> list[str]:
    """Sentences on what the numbers refer to, and what they cannot show."""
    if assessment.simulated:
        return [
            f"The policy ran on the simulator {assessment.where}, with and without its filter from "
            "the same starts, with the same disturbances and noise. The result applies to the "
            "plant only as far as the simulator resembles it.",
            "Hard constraints are those of the action, and costs with a limit for every step. Soft "
            "constraints are costs with a limit for the sum of an episode. Preferences reduce the "
            "wear of an actuator.",
        ]
    return [
        f"There is only the log {assessment.where}. The policy proposed actions in the logged "
        "situations, and the plant followed the logged actions, so the effects of the proposals "
        "were not observed.",
        "This report shows whether the requests of the policy keep the constraints of the action "
        "in the logged situations; that the actions that the filter passes keep them there, "
        "whatever the plant is; how often the filter intervenes on this log; and which monitors "
        "alarm on it.",
        "It cannot show the costs, states, trips or return that the policy would have caused. "
        f"Those columns describe only the log ({LOGGED}). In shadow every step starts from the "
        "logged action, so the rate limit acts wherever policy and log differ; in closed loop it "
        "acts less often.",
    ]


TIERS = {
    "hard": "Hard: must hold",
    "soft": "Soft: counted against a budget",
    "preference": "Preferences: spare the actuators",
}


def page(assessment: Assessment) -> str:
    """The report as one HTML document without scripts or external references."""
    return page_with_answer(
        "safety report",
        f"Does {assessment.policy} keep its limits on {assessment.where}?",
        answer(assessment),
        headline(assessment),
        _sections(assessment),
        good=not assessment.broken,
        title=f"Safety of {assessment.policy} on {assessment.where}",
    )


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
    text = (
        "Left: fraction of the episodes in which each constraint was broken, with its exact "
        "interval; hard constraints in red. Right: how often the filter moved each channel, and "
        "how far."
    )
    parts: list[Content] = []
    if _style.installed():
        parts.append(picture(overview, assessment, name="overview", caption=text))
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
    return join(parts)


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


def _violation_row(constraint: ConstraintColumn, label: str, part: Violations) -> list[Content]:
    first = label == next(iter(constraint.violations))
    name = join([tag("span", constraint.name), tag("span", constraint.text, class_="detail")])
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
        [row.text, percent(row.steps), str(row.episodes), row.flag] for row in assessment.reasons
    ]
    return join(
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
        text = (
            f"{case.title}. Shaded: beyond a limit. Dotted: ends of the actuator. Last panel on "
            "the right: when the filter changed the action, and when the fallback acted."
        )
        parts.append(tag("h3", case.title))
        parts.append(picture(case_figure, case, assessment, name=f"case{number_}", caption=text))
    return join(parts)


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
            join([tag("span", monitor.name), tag("span", monitor.text, class_="detail")]),
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
    for field, text in METRICS.items():
        values = [getattr(metrics, field) for metrics in assessment.metrics.values()]
        rows.append([text.format(unit=assessment.unit), *(_cell(field, value) for value in values)])
    return table(
        f"Means and fractions with {confidence(assessment.level)} intervals: exact for fractions "
        "(Clopper-Pearson), by a bootstrap over the episodes for means.",
        columns,
        rows,
    )


METRICS = {
    "n_episodes": "Episodes",
    "returns": "Return, mean [{unit}]",
    "return_std": "Return, standard deviation",
    "return_min": "Return, minimum",
    "return_max": "Return, maximum",
    "length": "Length, mean [steps]",
    "length_std": "Length, standard deviation",
    "violations": "Violating steps, hard and soft",
    "violations_per_episode": "Violating steps per episode, mean",
    "critical_violations": "Violating steps, hard",
    "trips": "Shutdowns (trips), of episodes",
    "satisfaction": "Episodes that kept every hard and soft constraint",
    "success": "Success, of episodes",
}
FRACTIONS = {"trips", "satisfaction", "success"}
assert set(METRICS) <= set(SafetyRow.__dataclass_fields__)


def _cell(field: str, value: object) -> str:
    if value is None:
        return DASH
    if isinstance(value, Estimate):
        if field in FRACTIONS:
            return fraction_interval(value)
        return with_interval(value, max(decimals([value]), 1))
    return f"{value}" if isinstance(value, int) else with_decimals(float(str(value)), 2)


def _guarantee(assessment: Assessment) -> Html:
    return join(
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


VERSION = 2
PAGE, NUMBERS, OVERVIEW = "safety.html", "safety.json", "safety.png"
DPI = 130


def assessment_to_json(assessment: Assessment) -> dict[str, Any]:
    """All numbers and descriptions as JSON, without the rows of the worst cases."""
    plain = to_plain(assessment)
    cases = [{"title": case.title, "start": case.guarded.start} for case in assessment.cases]
    return {
        **head("safety-report", VERSION),
        "passed": not assessment.broken,
        "sentence": headline(assessment),
        "broken": [constraint.name for constraint in assessment.broken],
        "filter": WITH,
        **{**plain, "cases": cases},
        "scope": scope(assessment),
        "guarantee": list(GUARANTEE),
        "conditions": list(CONDITIONS),
        "not_claimed": list(NOT_CLAIMED),
    }


def write_safety_report(assessment: Assessment, directory: str | os.PathLike[str]) -> Path:
    """Writes ``safety.html``, ``safety.json``, ``safety.png`` and one figure for each worst case.

    Args:
        assessment: Result of :func:`assess_on_plant` or :func:`assess_on_log`.
        directory: Folder; created if it is missing.

    Returns:
        The path of the page.

    Raises:
        InputError: If the folder cannot be created.
        OSError: If a file cannot be written.
    """
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from error
    write_json(folder / NUMBERS, assessment_to_json(assessment))
    if _style.installed():
        _save(_style.draw_styled(overview, assessment), folder / OVERVIEW)
        for i, case in enumerate(assessment.cases):
            figure = _style.draw_styled(case_figure, case, assessment)
            _save(figure, folder / f"safety-case-{i + 1}.png")
    write_text(folder / PAGE, page(assessment))
    return folder / PAGE


def _save(figure: Any, path: Path) -> None:
    with replacing(path) as partial:
        figure.savefig(partial, format="png", dpi=DPI)


STYLES = {LOGGED: (CLASSICAL, "^"), WITHOUT: (LEARNERS[1], "o"), WITH: (LEARNERS[0], "D")}
MAX_CONSTRAINTS = 14


def overview(assessment: Assessment) -> Any:
    """Left: fraction of the episodes in which each constraint was broken. Right: who acts."""
    order = {"hard": 0, "soft": 1, "preference": 2}
    shown = sorted(
        assessment.constraints,
        key=lambda constraint: (
            order[constraint.tier],
            -max(part.episode_fraction.value for part in constraint.violations.values()),
        ),
    )[:MAX_CONSTRAINTS]
    figure = new_figure(0.42 * len(shown) + 1.5)
    left, right = figure.subplots(1, 2, width_ratios=(3, 1.5))
    for row, constraint in enumerate(shown):
        for offset, (label, part) in zip(
            (-0.2, 0.2, 0.0), constraint.violations.items(), strict=False
        ):
            colour, marker = STYLES[label]
            fraction, y = part.episode_fraction, len(shown) - 1 - row + offset
            left.plot([100 * fraction.low, 100 * fraction.high], [y, y], color=colour, lw=2)
            left.plot(
                100 * fraction.value, y, marker, color=colour, ms=7, mec=SURFACE, mew=0.6,
                label=label if label not in left.get_legend_handles_labels()[1] else None,
            )  # fmt: skip
    names = [f"{constraint.name}  ({constraint.tier})" for constraint in shown]
    left.set_yticks(range(len(shown))[::-1], names)
    for tick, constraint in zip(left.get_yticklabels(), shown, strict=True):
        tick.set_color(LIMIT if constraint.tier == "hard" else INK)
    left.set_ylim(-0.6, len(shown) - 0.4)
    left.set_xlim(-1, 101)
    left.set_xlabel("episodes with a violation [%], exact interval")
    _acting(right, assessment)
    figure.legend(loc="outside upper left", ncols=3)
    return figure


def _acting(panel: Any, assessment: Assessment) -> None:
    names = [intervention.channel for intervention in assessment.interventions]
    fraction = np.array([100 * intervention.changed for intervention in assessment.interventions])
    rows = np.arange(len(names))[::-1]
    panel.barh(rows, fraction, height=0.5, color=LEARNERS[0])
    for row, intervention, value in zip(rows, assessment.interventions, fraction, strict=True):
        label = f"{value:.1f} %, largest {intervention.largest:.3g} {intervention.unit}"
        panel.text(1, row + 0.36, label, fontsize=8.5, color=INK)
    panel.barh([-1], [100 * assessment.fallback], height=0.5, color=LIMIT, hatch="///", ec=GRID)
    panel.text(
        1, -1 + 0.36, f"{100 * assessment.fallback:.1f} % of the steps", fontsize=8.5, color=INK
    )
    panel.set_yticks([*rows, -1], [*names, "fallback acts"])
    panel.set_ylim(-1.6, len(names) - 0.3)
    panel.set_xlim(0, 100)
    panel.set_xlabel("steps with a move [%]")


def case_figure(case: Case, assessment: Assessment) -> Any:
    """One episode with the filter, and behind it the same start without; shaded beyond limits."""
    bands = [*assessment.bands, *_boxes(assessment)]
    names = (
        ("with the filter", "without the filter, from the same start")
        if assessment.simulated
        else ("as the filter would have passed it", "as logged")
    )
    return trends(case.guarded, case.other, assessment.spec, bands, names=names)


def _boxes(assessment: Assessment) -> list[Band]:
    """Boxes that are tighter than the range of their channel, parsed from their description."""
    boxes = []
    ends = {constraint.name: constraint.text for constraint in assessment.constraints}
    for channel in assessment.spec.action:
        text = ends.get(f"{channel.name}: range", "")
        low, _, rest = text.partition(" to ")
        if rest:
            high = rest.split(" ")[0]
            if float(low) > channel.low or float(high) < channel.high:
                boxes.append(Band(channel.name, float(low), float(high)))
    return boxes
