"""Tunings of the plant that recorded a part of the log, except the one to beat."""

from neorl_agents.artefact import POLICY_KINDS
from neorl_core import InputError
from neorl_train.candidates._family import Family, Made, Material, RunInputs
from neorl_train.data._behaviours import own_episodes
from neorl_train.judging._pool import Candidate

TUNED = "tuned"
"""Family of the plant's own controllers."""


def _names(inputs: RunInputs) -> list[str]:
    """The tunings that may be delivered; none without a log, which shows whether they ran."""
    config = inputs.config
    if config.training.on != "log" and config.data.steps == 0:
        return []
    compared = (config.retuning.controller, config.evaluation.runs_today)
    # A controller that was fitted keeps its name.
    others = (*compared, *config.classical.names)
    return [name for name in inputs.tunings if name not in others]


def _take_recorded(material: Material) -> Made:
    """The tunings that recorded an episode, if they or all modes are requested."""
    config, environment, dataset = material.config, material.environment, material.dataset
    if environment is None or dataset is None:
        return Made([], [])
    requested, tunings = config.evaluation.candidate, environment.tunings()
    compared = (config.retuning.controller, config.evaluation.runs_today)
    masks = {name: own_episodes(dataset, name) for name in tunings}
    recorded = [
        name
        for name, mask in masks.items()
        if mask is not None and mask.any() and name not in compared
    ]
    others = (*config.training.algorithms, *config.classical.names)
    if requested in tunings and requested not in (*others, *recorded):
        raise InputError(
            f"evaluation.candidate is {requested!r}, which recorded no episode of the log; choose "
            f"one of {', '.join((*others, *recorded))}"
        )
    candidates: list[Candidate] = []
    notes: list[str] = []
    for name in recorded:
        if name in config.classical.names or not (config.retuning.modes or name == requested):
            continue
        policy, text = tunings[name], f"mode {name} of the log"
        if all(type(policy) is not kind.policy for kind in POLICY_KINDS.values()):
            notes.append(
                f"{text} is not a candidate, because a {type(policy).__name__} cannot be written "
                "to an artefact"
            )
            continue
        metadata = {"controller": name, "seed": material.seed}
        seeds = (material.seed,)
        candidates.append(Candidate(name, TUNED, policy, seeds, text, True, metadata))
    return Made(candidates, notes)


MODES = Family(_names, _take_recorded)
