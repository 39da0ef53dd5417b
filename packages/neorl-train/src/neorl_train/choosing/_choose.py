"""The choice of a candidate without the plant, with all its parts, in one plant model."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from neorl_agents.retuning import PlantFacts
from neorl_core import Policy
from neorl_core.infrastructure import unknown_name
from neorl_envs import Dataset
from neorl_train.choosing._model_check import PlantModelCheck, check_plant_model
from neorl_train.choosing._options import MODEL, RISK, ChooseOptions, learn_plants
from neorl_train.choosing._risk import Risk, risk_estimates
from neorl_train.choosing._select import Selection, select_candidates

INCUMBENT_UNKNOWN = (
    "the controller that runs today is not known, so it was not checked whether the model "
    "reproduces it, and only the predictions from the logged actions decide; name it with "
    "--incumbent, or in a run as retuning.controller"
)


class ChosenCandidate(NamedTuple):
    """The parts of a choice.

    Attributes:
        selection: The candidates and the choice; ``None`` if the plant model alone was asked for,
            or if there is nothing to choose from.
        check: Whether the plant model may be used; ``None`` if this was not asked for.
        notes: What a reader should know before, in sentences.
        risk: Risk of the limits; ``None`` if no limit is declared or this was not asked for.
    """

    selection: Selection | None
    check: PlantModelCheck | None
    notes: tuple[str, ...] = ()
    risk: Risk | None = None


def choose_candidate(
    dataset: Dataset,
    source: str,
    candidates: Mapping[str, Policy],
    options: ChooseOptions,
    facts: PlantFacts | None = None,
    incumbent: str = "",
) -> ChosenCandidate:
    """Learns the plant from a log once, checks the model and compares the candidates in it.

    The incumbent is kept if the model fails a check that decides.

    Args:
        dataset: Log with rewards.
        source: Name of the log, for messages and the page.
        candidates: Deterministic policies in physical units by name.
        options: The parts to make, and how.
        facts: Declared facts about the plant; none by default.
        incumbent: Candidate that runs today; unknown by default.

    Raises:
        InputError: If the incumbent is no candidate, the log does not suffice, or there are fewer
            than two candidates and the model alone was not asked for.
    """
    if incumbent and incumbent not in candidates:
        raise unknown_name("candidate as incumbent", incumbent, list(candidates))
    asked = dataclasses.replace(options, incumbent=incumbent)
    if MODEL not in options.show:
        selection = select_candidates(dataset, source, candidates, asked, facts)
        risk = _risk(dataset, candidates, selection, options)
        return ChosenCandidate(selection, None, _notes(selection, incumbent), risk)
    today = incumbent or next(iter(candidates), "")
    plants = learn_plants(dataset, options, facts, candidates, today)
    check = check_plant_model(dataset, source, options, facts, candidates, incumbent, plants=plants)
    notes = () if incumbent else (INCUMBENT_UNKNOWN,)
    if options.show == (MODEL,):
        return ChosenCandidate(None, check, notes)
    if len(candidates) < 2:
        few = "is one candidate" if candidates else "are no candidates"
        alone = f"there {few} for {source}, so only the plant model is shown; name others with "
        return ChosenCandidate(None, check, (*notes, f"{alone}--policies"))
    selection = select_candidates(dataset, source, candidates, asked, facts, plants=plants)
    selection = _unless_refused(selection, check)
    risk = _risk(dataset, candidates, selection, options)
    return ChosenCandidate(selection, check, (*notes, *_notes(selection, incumbent)), risk)


def _risk(
    dataset: Dataset,
    candidates: Mapping[str, Policy],
    selection: Selection,
    options: ChooseOptions,
) -> Risk | None:
    """The risks of the candidates in the order of the selection."""
    if RISK not in options.show or not options.risk_updates or not dataset.spec.cost:
        return None
    names = [one.prediction.name for one in selection.candidates]
    return risk_estimates(dataset, {name: candidates[name] for name in names}, options)


def _notes(selection: Selection, incumbent: str) -> tuple[str, ...]:
    if incumbent:
        return ()
    return (
        f"the controller that recorded this log is not known, so {selection.incumbent} is taken "
        "as today's controller; name another candidate with --incumbent",
    )


def _unless_refused(selection: Selection, check: PlantModelCheck) -> Selection:
    """The same choice, or the incumbent if the plant model may not be used."""
    failed = tuple(
        f"the plant model fails the check {one.name} ({one.sentence})"
        for one in check.checks
        if one.decides and not one.holds
    )
    if selection.warnings or not failed:
        return selection
    return dataclasses.replace(selection, chosen=selection.incumbent, warnings=failed)
