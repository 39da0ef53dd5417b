"""The page and the data file of a choice without the plant."""

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

from neorl_agents.retuning import Prediction
from neorl_core.costs import limit_kind
from neorl_core.infrastructure import head, write_json, write_text
from neorl_train.choosing._choose import ChosenCandidate
from neorl_train.choosing._model_check import PlantModelCheck
from neorl_train.choosing._model_page import mark, model_sections
from neorl_train.choosing._options import MODEL, RISK, VALUES
from neorl_train.choosing._return_distribution import MOST_FAR
from neorl_train.choosing._risk import LimitRisk, Risk
from neorl_train.choosing._select import CandidateEstimates, Selection
from neorl_train.choosing._value_estimates import MIN_SIZE
from neorl_train.judging._results import to_plain
from neorl_train.judging._tables import Estimate
from neorl_train.judging._wording import number, percent, quantity, with_ends, with_unit
from neorl_train.pages._html import (
    Column,
    Html,
    Section,
    bullets,
    join,
    page_with_answer,
    paragraph,
    table,
)

VERSION = 1
PARTS = (MODEL, VALUES, RISK)


def write_choice(
    path: Path, choice: ChosenCandidate, show: Collection[str] = PARTS
) -> tuple[Path, dict[str, Any]]:
    """Writes the page of a choice, and beside it the same content as JSON.

    Args:
        path: The page; the JSON file has the same name with ``.json``.
        choice: Result of :func:`choose_candidate`.
        show: Parts of the page, as in :class:`ChooseOptions`.

    Returns:
        The JSON file, and its content.

    Raises:
        OSError: If one cannot be written.
    """
    content = _to_json(choice)
    json_path = path.with_suffix(".json")
    write_json(json_path, content)
    write_text(path, page(choice, show))
    return json_path, content


def _to_json(choice: ChosenCandidate) -> dict[str, Any]:
    """The choice, all estimates and the checks of the plant model as plain JSON."""
    selection, check = choice.selection, choice.check
    content = {} if selection is None else _selection_to_plain(selection)
    if choice.risk is not None:
        limits = [limit._asdict() for limit in choice.risk.limits]
        content["risk"] = {**choice.risk._asdict(), "limits": limits}
    if check is not None:
        content["model"] = {
            "sentence": check.sentence,
            "usable": check.usable,
            "checks": [one._asdict() for one in check.checks],
            "held_out_modes": [
                {
                    "name": mode.name,
                    "predicted": mode.predicted,
                    "expected": mode.outcome.expected,
                    "standard_error": mode.chance,
                    "difference_between_modes": mode.spread,
                    "error": mode.share,
                    "outside": mode.outside,
                }
                for mode in check.held_out
            ],
        }
    return {**head("choice", VERSION), **to_plain(content)}


def _selection_to_plain(selection: Selection) -> dict[str, Any]:
    plain = {
        field.name: getattr(selection, field.name)
        for field in dataclasses.fields(selection)
        if field.name not in ("spec", "candidates")
    }
    costs = [
        {"name": c.name, "unit": c.unit, "limit": c.limit, "per": c.per}
        for c in selection.spec.cost
    ]
    rows = []
    for candidate in selection.candidates:
        prediction = dataclasses.asdict(candidate.prediction)
        del prediction["refused_by"]
        prediction["refusals"] = candidate.prediction.refusals
        row: dict[str, Any] = {"prediction": prediction}
        if candidate.movement is not None:
            row["movement"] = candidate.movement._asdict()
        if candidate.values is not None:
            values = candidate.values._asdict()
            del values["first"]
            row["values"] = values
            row["others"] = candidate.others
        if candidate.distribution is not None:
            row["distribution"] = candidate.distribution._asdict()
        rows.append(row)
    return {**plain, "sentence": selection.sentence, "costs": costs, "candidates": rows}


def page(choice: ChosenCandidate, show: Collection[str] = PARTS) -> str:
    """The page as one HTML document without scripts or external references."""
    selection, check = choice.selection, choice.check
    of_model = [] if check is None else model_sections(check)
    if selection is None:
        assert check is not None  # a page shows one of them
        return page_with_answer(
            "plant model",
            f"Does a model learned from {check.source} reproduce its plant?",
            "The model may be used" if check.usable else "The model must not be used",
            check.sentence,
            [*of_model, _limits(None, check)],
            good=check.usable,
            title=f"Plant model of {check.source}",
        )
    changes = selection.chosen != selection.incumbent
    values: list[Section] = [
        ("returns", "Predicted return", _predictions(selection)),
        ("movement", "Movement of actuators and measurements", _movement(selection)),
        ("refused", "Reasons against each candidate", _refusals(selection)),
        ("values", "Other estimators", _values(selection)),
        ("distribution", "Distribution of the return", _distributions(selection)),
        ("neighbours", "Errors near what each candidate visits", _corrections(selection)),
    ]
    risk: Section = ("risk", "Risk: costs beside their limits", _risk(selection, choice.risk))
    return page_with_answer(
        "choice without the plant",
        f"Which candidate of {selection.source}?",
        f"Try {selection.chosen}" if changes else f"Keep {selection.incumbent}",
        selection.sentence,
        [
            *(values if VALUES in show else []),
            *([risk] if RISK in show else []),
            *of_model,
            _limits(selection, check),
        ],
        good=changes,
        title=f"Choice among the candidates of {selection.source}",
    )


def lines(choice: ChosenCandidate) -> list[str]:
    """The choice for the terminal, with one line per check and one per candidate."""
    rows, selection = [], choice.selection
    if choice.check is not None:
        rows = [f"{mark(one)} {one.name}: {one.sentence}" for one in choice.check.checks]
        rows.append(choice.check.sentence)
    if selection is None:
        return rows
    for candidate in selection.candidates:
        prediction = candidate.prediction
        star = "*" if prediction.name == selection.chosen else " "
        costs = "".join(
            f"; {c.name} {with_unit(f'{number(value)} (up to {number(high)})', c.unit)}"
            for c, value, high in zip(
                selection.spec.cost, prediction.cost, prediction.cost_high, strict=True
            )
        )
        unit, gain = selection.reward_unit, "runs today"
        if prediction.name != selection.incumbent:
            gain = f"gain {with_unit(_range(prediction), unit)}"
        fitted = ""
        if candidate.values is not None:
            value = with_unit(_interval(candidate.values.fitted_q), unit)
            fitted = f"; discounted {value} by {_networks(selection.value_members)}"
        why = f"; not preferred: {prediction.refusals[0]}" if prediction.refusals else ""
        rows.append(
            f"{star} {prediction.name}: return {with_unit(_returns(prediction), unit)}, "
            f"{gain}{costs}{fitted}{why}"
        )
    if choice.risk is not None and choice.risk.none:
        rows.append(f"  no safety critic: {choice.risk.none}")
    for limit in choice.risk.limits if choice.risk is not None else ():
        named = zip(selection.candidates, limit.candidates, strict=True)
        shares = ", ".join(f"{one.prediction.name} {_share(risk)}" for one, risk in named)
        rows.append(f"  risk of {limit.name} in the next steps: {shares}")
    return [*rows, selection.sentence]


def _predictions(selection: Selection) -> Html:
    unit = selection.reward_unit
    columns = [Column("Candidate", align="left"), Column("Return", unit), Column("Gain", unit)]
    rows = []
    for candidate in selection.candidates:
        prediction = candidate.prediction
        gain = "runs today" if prediction.name == selection.incumbent else _range(prediction)
        rows.append([_label(candidate, selection), _returns(prediction), gain])
    text = (
        f"{selection.episodes} logged episodes that the plant model was not fitted to are replayed "
        "under every candidate, with the model's error in each logged step added. In brackets: the "
        "95 % interval over episodes and the networks of the model."
    )
    return join([paragraph(text), table("Means over episodes.", columns, rows)])


def _risk(selection: Selection, risk: Risk | None) -> Html:
    """One table per declared limit, with every estimate of the cost that it bounds."""
    if not selection.spec.cost:
        return paragraph("No limit is declared, so there is nothing to compare with one.")
    text = (
        "A candidate is chosen only with every predicted cost as allowed. Predicted is the mean of "
        "the replayed episodes, with its upper bound; beside it stands the share of those episodes "
        "that come near the limit. The other estimators are of sums discounted by "
        f"{number(selection.discount)} per step, and for information: fitted Q evaluation, its "
        "distributional form with the mean of the worst tenth of the episodes, and that form "
        "corrected by the nearest logged rows. An episode is over a limit if its discounted cost "
        "is higher than that of a cost spread evenly up to the limit; the sum does not show a "
        "limit per step."
    )
    parts = [paragraph(text)]
    for j in range(selection.spec.n_cost):
        limit = risk.limits[j] if risk is not None and risk.limits else None
        parts.append(_costs(selection, j, limit))
    if risk is not None:
        parts.append(_risk_text(risk))
    return join(parts)


def _risk_text(risk: Risk) -> Html:
    """What the last column of the tables means, and how far it can be trusted."""
    if risk.none:
        return paragraph(f"No safety critic was fitted: {risk.none}.")
    text = (
        f"The risk of the next {risk.horizon} steps is that of a safety critic which was fitted to "
        "three quarters of the log: the probability that a step counts against the limit if the "
        "candidate acts once and then whoever recorded the log, averaged over logged observations "
        "of the other episodes. It shows nothing about what a candidate in charge would lead to, "
        "and decides nothing."
    )
    return join([paragraph(text), bullets([_trust(limit) for limit in risk.limits])])


def _trust(limit: LimitRisk) -> str:
    area, error = (
        with_ends(*measure) for measure in (limit.area_under_roc, limit.calibration_error)
    )
    return (
        f"{limit.name}: {limit.claim}. In the other episodes {percent(limit.rate)} of the windows "
        f"have a violation; the area under the ROC curve of the critic is {area}, its calibration "
        f"error {error}"
    )


def _costs(selection: Selection, j: int, limit_risk: LimitRisk | None) -> Html:
    """All estimates of one cost of every candidate."""
    channel, first = selection.spec.cost[j], selection.candidates[0]
    with_values, fitted = first.values is not None, first.distribution is not None
    columns = [
        Column("Candidate", align="left"),
        Column(f"Predicted {limit_kind(channel.per).quantity}", channel.unit),
        Column("Episodes near the limit"),
        *[Column("Fitted Q evaluation", channel.unit)] * with_values,
    ]
    if fitted:
        columns += [Column("Distribution", channel.unit), Column("Worst tenth", channel.unit)]
        columns += [Column("Episodes over the limit")] * (channel.per == "episode")
        columns += [Column("Error", channel.unit), Column("Corrected", channel.unit)]
    columns += [Column("Risk of the next steps")] * (limit_risk is not None)
    rows = []
    for number_of, candidate in enumerate(selection.candidates):
        prediction, one = candidate.prediction, candidate.distribution
        cells = [
            _label(candidate, selection),
            f"{number(prediction.cost[j])} (up to {number(prediction.cost_high[j])})",
            percent(prediction.over[j]),
        ]
        if candidate.values is not None:
            cells.append(_interval(candidate.values.fitted_q_costs[j]))
        if one is not None:
            cells += [_interval(one.costs[j]), _interval(one.costs_worst_tenth[j])]
            over = one.over[j]
            if over is not None:
                cells.append(_share(over))
            cells += [
                _interval(estimate) if one.near else "too far to tell"
                for estimate in (one.cost_bias[j], one.corrected_costs[j])
            ]
        if limit_risk is not None:
            cells.append(_share(limit_risk.candidates[number_of]))
        rows.append(cells)
    limit = with_unit(number(channel.limit), channel.unit)
    return table(f"{channel.name}, at most {limit} per {channel.per}.", columns, rows)


def _share(estimate: Estimate) -> str:
    return f"{percent(estimate.value)} [{percent(estimate.low)}, {percent(estimate.high)}]"


def _label(candidate: CandidateEstimates, selection: Selection) -> str:
    name = candidate.prediction.name
    return f"{name} (the choice)" if name == selection.chosen else name


def _returns(prediction: Prediction) -> str:
    value, reach = prediction.returns, prediction.returns_reach
    return with_ends(value, value - reach, value + reach)


def _range(prediction: Prediction) -> str:
    return with_ends(prediction.gain, prediction.low, prediction.high)


def _movement(selection: Selection) -> Html:
    """Travel of every actuator and deviation of every predicted measurement."""
    if selection.candidates[0].movement is None:
        return Html("")
    spec = selection.spec
    columns = [Column("Candidate", align="left")]
    columns += [Column(f"{c.name}, travel per step", c.unit) for c in spec.action]
    measured = [c for c in spec.obs if c.name in selection.predicted]
    columns += [Column(f"{c.name}, standard deviation", c.unit) for c in measured]
    rows = [
        [_label(one, selection), *map(_interval, (*one.movement.travel, *one.movement.deviation))]
        for one in selection.candidates
        if one.movement is not None
    ]
    text = (
        "Mean absolute move of each actuator from one step to the next, and the standard deviation "
        "of each measurement within an episode, which contains the moves of a setpoint that it "
        "follows, in the same replayed episodes. In brackets: the 95 % interval over episodes and "
        "the networks of the model."
    )
    return join([paragraph(text), table("Means over episodes.", columns, rows)])


def _refusals(selection: Selection) -> Html:
    refusals = [
        f"{candidate.prediction.name}: {reason}"
        for candidate in selection.candidates
        for reason in candidate.prediction.refusals
    ]
    return bullets(refusals) if refusals else paragraph("There is no reason against any of them.")


def _values(selection: Selection) -> Html:
    if selection.candidates[0].values is None:
        return Html("")
    several = selection.value_members > 1
    columns = [
        Column("Candidate", align="left"),
        Column("Fitted Q evaluation"),
        *[Column(f"Spread of {_networks(selection.value_members)}")] * several,
        Column("Importance sampling"),
        Column("Doubly robust"),
        Column("Effective episodes"),
    ]
    rows = []
    for candidate in selection.candidates:
        values = candidate.values
        assert values is not None
        enough = values.effective >= MIN_SIZE
        rows.append(
            [
                candidate.prediction.name,
                _interval(values.fitted_q),
                *([] if values.spread is None else [number(values.spread)]),
                *(
                    _interval(x) if enough else "too few to tell"
                    for x in (values.importance, values.doubly_robust)
                ),
                number(values.effective),
            ]
        )
    text = (
        f"Returns discounted by {number(selection.discount)} per step. {_of_members(selection)} "
        "Importance sampling weights "
        "logged episodes by how likely a candidate would have acted in the same way; with fewer "
        f"than {number(MIN_SIZE)} effective episodes it gives no information. These estimators do "
        "not rank the candidates, but a candidate is refused if one of them predicts a loss that "
        "exceeds its interval and its own error on the incumbent."
    )
    agreements = {"fitted Q evaluation": selection.agreement, **selection.agreements}
    known = [f"{name} {number(value)}" for name, value in agreements.items() if value == value]
    if known:
        text += f" Rank correlation with the returns of the model: {'; '.join(known)}."
    return join([paragraph(text), table("Estimates of the other estimators.", columns, rows)])


def _of_members(selection: Selection) -> str:
    """What the interval of fitted Q evaluation holds, in a sentence or two."""
    if selection.value_members == 1:
        return (
            "Fitted Q evaluation is that of a single network, and its interval covers the "
            "variation between first observations, not the error of the fit."
        )
    return (
        f"Fitted Q evaluation is the mean of {_networks(selection.value_members)}, each on a "
        "bootstrap of the episodes and with a target of its own. Its interval covers the variation "
        "between first observations and that between the networks, but no error that all of them "
        "share."
    )


def _networks(members: int) -> str:
    return f"{members} networks" if members > 1 else "one network"


def _distributions(selection: Selection) -> Html:
    """The distribution of every candidate's return."""
    if selection.candidates[0].distribution is None:
        return Html("")
    columns = [Column("Candidate", align="left"), Column("Return"), Column("Worst tenth")]
    rows = []
    for candidate in selection.candidates:
        one = candidate.distribution
        assert one is not None
        rows.append([candidate.prediction.name, _interval(one.mean), _interval(one.worst_tenth)])
    text = (
        "Distributional fitted Q evaluation of the same discounted sums: their means, and the "
        "means of the worst tenth of the episodes. The intervals cover the variation between "
        "starts, not the error of the fit."
    )
    return join([paragraph(text), table("Distribution from the logged starts.", columns, rows)])


def _corrections(selection: Selection) -> Html:
    """The errors of the means near what every candidate visits."""
    if selection.candidates[0].distribution is None:
        return Html("")
    columns = [Column("Candidate", align="left"), Column("Error of the return")]
    columns += [Column("Corrected return"), Column("Far from the log")]
    rows = []
    for candidate in selection.candidates:
        one = candidate.distribution
        assert one is not None
        both = (one.bias, one.corrected)
        cells = [_interval(x) if one.near else "too far to tell" for x in both]
        rows.append([candidate.prediction.name, *cells, percent(one.far)])
    text = (
        "The means above were fitted to a part of the log. Their errors in the other episodes are "
        "averaged over the logged observations and actions that are nearest to those that a "
        "candidate visits in the plant model, and added. The interval of a corrected value "
        "includes that of its error, but no error of the plant model in what is visited. If more "
        f"than {percent(MOST_FAR)} of what a candidate visits is farther from the log than 99 % of "
        "the logged rows are from other episodes, no error is stated."
    )
    return join([paragraph(text), table("Corrected by the nearest logged rows.", columns, rows)])


def _interval(estimate: Estimate) -> str:
    return with_ends(estimate.value, estimate.low, estimate.high)


def _limits(selection: Selection | None, check: PlantModelCheck | None) -> Section:
    """What the page does not show."""
    sentences = []
    if selection is not None:
        sentences.append(
            "Where the log shows the true return, the error of the model is "
            f"{quantity(selection.error, selection.reward_unit)}; a gain must be at least a fifth "
            "of that."
            if selection.error
            else "The log does not state which controller recorded each episode, so a gain need "
            "not exceed an error of the model in the episodes of a controller. Instead, the model "
            "must reproduce the controller that is named as today's, or else pass its checks."
        )
        sentences.append("A prediction is not a permission: no candidate has run on the plant.")
    if check is not None:
        sentences.append(
            "The logged actions are those of the controllers and operators that recorded the log. "
            "A controller that acts differently can lead the model into regions where nothing was "
            "recorded."
        )
        sentences.append(
            "When candidates are compared, the model's error in every logged step is added as "
            "well, so those predictions are closer to the plant than those from logged actions."
        )
    sentences.append(
        "Effects that the log never shows, such as rare peaks of a faster loop, are missing in "
        "all estimates, and so are interlocks that plant.toml does not declare."
    )
    return "limits", "What this page does not show", bullets(sentences)
