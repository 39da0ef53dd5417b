"""The page and the data file of a choice without the plant."""

import dataclasses
from pathlib import Path
from typing import Any

from neorl_core.costs import limit_kind
from neorl_core.infrastructure import head, write_json, write_text
from neorl_train.report._document import Section, document
from neorl_train.report._html import Column, Html, bullets, joined, paragraph, table, tag
from neorl_train.results._tables import Estimate
from neorl_train.results._wording import number, percent, quantity, with_ends
from neorl_train.selection._select import Estimated, Selection
from neorl_train.selection._value_estimates import LEAST_SIZE

VERSION = 1


def write_selection(selection: Selection, path: Path) -> tuple[Path, Path]:
    """Writes the page, and beside it the same content as JSON.

    Args:
        selection: Result of :func:`select_candidates`.
        path: The page; the JSON file has the same name with ``.json``.

    Returns:
        Both files.

    Raises:
        OSError: If one cannot be written.
    """
    beside = path.with_suffix(".json")
    write_json(beside, selection_to_json(selection))
    write_text(path, page(selection))
    return path, beside


def selection_to_json(selection: Selection) -> dict[str, Any]:
    """The choice and all estimates as plain JSON."""
    plain = {
        field.name: getattr(selection, field.name)
        for field in dataclasses.fields(selection)
        if field.name not in ("spec", "candidates")
    }
    plain["agreement"] = None if plain["agreement"] != plain["agreement"] else plain["agreement"]
    costs = [
        {"name": c.name, "unit": c.unit, "limit": c.limit, "per": c.per}
        for c in selection.spec.cost
    ]
    rows = []
    for one in selection.candidates:
        row: dict[str, Any] = {"prediction": dataclasses.asdict(one.prediction)}
        if one.values is not None:
            values = one.values._asdict()
            del values["first"]
            row["values"] = {name: _plain(value) for name, value in values.items()}
            row["others"] = [dataclasses.asdict(other) for other in one.others]
        rows.append(row)
    return {
        **head("selection", VERSION), **plain, "sentence": selection.sentence, "costs": costs,
        "candidates": rows,
    }  # fmt: skip


def page(selection: Selection) -> str:
    """The page as one HTML document without scripts or external references."""
    changes = selection.chosen != selection.incumbent
    kind, sign = ("yes", "\N{CHECK MARK}") if changes else ("no", "\N{MULTIPLICATION X}")
    answer = f"Try {selection.chosen}" if changes else f"Keep {selection.incumbent}"
    header = [
        tag("p", "neorl \N{MIDDLE DOT} choice without the plant", class_="over"),
        tag("h1", f"Which candidate of {selection.source}?"),
        tag(
            "div",
            tag("span", sign, class_="mark", aria_hidden="true"),
            tag("div", tag("p", answer, class_="answer"), tag("p", selection.sentence)),
            class_=f"verdict {kind}",
            id="verdict",
            role="status",
        ),
    ]
    sections: list[Section] = [
        ("returns", "Predicted return and costs", _predictions(selection)),
        ("refused", "What speaks against each", _refusals(selection)),
        ("values", "What other estimators say", _values(selection)),
        ("limits", "What this page does not say", _limits(selection)),
    ]
    parts = [part for part in sections if part[2].text]
    return document(f"Choice among the candidates of {selection.source}", header, parts)


def lines(selection: Selection) -> list[str]:
    """The table for the terminal, with one line per candidate."""
    rows = []
    for one in selection.candidates:
        each, mark = one.prediction, "*" if one.prediction.name == selection.chosen else " "
        costs = "".join(
            f"; {c.name} {number(value)} (up to {number(high)})"
            for c, value, high in zip(selection.spec.cost, each.cost, each.cost_high, strict=True)
        )
        gain = f"gain {_range(each)}" if each.name != selection.incumbent else "runs today"
        why = f"; not preferred: {each.refusals[0]}" if each.refusals else ""
        rows.append(f"{mark} {each.name}: return {number(each.returns)}, {gain}{costs}{why}")
    return rows


def _predictions(selection: Selection) -> Html:
    unit = selection.reward_unit
    columns = [Column("Candidate", align="left"), Column("Return", unit), Column("Gain", unit)]
    for channel in selection.spec.cost:
        columns += [
            Column(f"{channel.name}, at most {number(channel.limit)}", channel.unit),
            Column(f"{channel.name}, episodes near the limit"),
        ]
    rows = [[_named(one, selection), *_cells(one, selection)] for one in selection.candidates]
    words = (
        f"{selection.episodes} logged episodes that the plant model was not fitted to are replayed "
        "under every candidate, with what the model left of each logged step. In brackets: 95 % "
        "between episodes, and the spread between the networks of the model."
    )
    return joined([paragraph(words), table("Means over episodes.", columns, rows)])


def _cells(one: Estimated, selection: Selection) -> list[str]:
    each = one.prediction
    gain = "runs today" if each.name == selection.incumbent else _range(each)
    cells = [number(each.returns), gain]
    for channel, value, high, over in zip(
        selection.spec.cost, each.cost, each.cost_high, each.over, strict=True
    ):
        words = f"{limit_kind(channel.per).quantity}: " if channel.per == "step" else ""
        cells += [f"{words}{number(value)} (up to {number(high)})", percent(over)]
    return cells


def _named(one: Estimated, selection: Selection) -> str:
    name = one.prediction.name
    return f"{name} (the choice)" if name == selection.chosen else name


def _range(one: Any) -> str:
    return with_ends(one.gain, one.low, one.high)


def _refusals(selection: Selection) -> Html:
    refusals = [
        f"{one.prediction.name}: {reason}"
        for one in selection.candidates
        for reason in one.prediction.refusals
    ]
    return bullets(refusals) if refusals else paragraph("Nothing speaks against any of them.")


def _values(selection: Selection) -> Html:
    if selection.candidates[0].values is None:
        return Html("")
    columns = [
        Column("Candidate", align="left"),
        Column("Fitted Q evaluation"),
        *(Column(f"{c.name}, fitted", c.unit) for c in selection.spec.cost),
        Column("Importance sampling"),
        Column("Doubly robust"),
        Column("Effective episodes"),
    ]
    rows = []
    for one in selection.candidates:
        seen = one.values
        assert seen is not None
        enough = seen.effective >= LEAST_SIZE
        rows.append(
            [
                one.prediction.name,
                _interval(seen.fitted_q),
                *(_interval(cost) for cost in seen.fitted_q_costs),
                *(
                    _interval(x) if enough else "too few"
                    for x in (seen.importance, seen.doubly_robust)
                ),
                number(seen.effective),
            ]
        )
    words = (
        f"Discounted returns, {number(selection.discount)} a step. Importance sampling weighs "
        "logged episodes by how likely a candidate would have acted like it; with fewer than "
        f"{number(LEAST_SIZE)} effective episodes it says nothing. None of these orders the "
        "candidates; one of which an estimator predicts a loss, beyond its interval and its own "
        "error on what runs today, is refused."
    )
    if selection.agreement == selection.agreement:
        words += (
            " The rank correlation of fitted Q evaluation and the model is "
            f"{number(selection.agreement)}."
        )
    return joined([paragraph(words), table("Other estimators.", columns, rows)])


def _interval(one: Estimate) -> str:
    return with_ends(one.value, one.low, one.high)


def _plain(value: Any) -> Any:
    if isinstance(value, Estimate):
        return {
            k: v if abs(v) < float("inf") else None for k, v in dataclasses.asdict(value).items()
        }
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _limits(selection: Selection) -> Html:
    error = (
        f"Where the log shows it, the model is wrong by "
        f"{quantity(selection.error, selection.reward_unit)}; a gain must be a fifth of that."
        if selection.error
        else "The log does not say who filled it, so the model was not compared with what runs."
    )
    return bullets(
        [
            error,
            "A prediction is no permission: nothing here has run on the plant.",
            "What the log never shows, such as rare peaks of a faster loop, is in no estimate.",
        ]
    )
