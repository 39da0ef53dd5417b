"""Controllers that imitate who recorded a part of a log: a mode, a shift, an operator."""

import numpy as np

from neorl_core import InputError
from neorl_train.candidates._best_behaviour import MIN_EPISODES, best_behaviour
from neorl_train.candidates._controller_text import identification_lines
from neorl_train.candidates._family import Family, Made, Material, RunInputs
from neorl_train.candidates._fitted import fit_inputs
from neorl_train.configuration._classical import settings_of
from neorl_train.configuration._guard import limited_spec
from neorl_train.data._behaviours import behaviours_of, imitation_name, own_episodes
from neorl_train.judging._pool import Candidate

IMITATED = "imitated"
"""Family of the imitations of those who recorded the log."""
IMITATOR = "pid_imitation"
"""The classical controller that imitates them."""


def _by_name(inputs: RunInputs) -> dict[str, str]:
    """Whom a log alone allows to imitate, by the name of the imitation.

    With a plant there is nobody: its tunings are known.
    """
    if inputs.environment is not None or inputs.dataset is None:
        return {}
    return {imitation_name(behaviour): behaviour for behaviour in behaviours_of(inputs.dataset)}


def _names(inputs: RunInputs) -> list[str]:
    return list(_by_name(inputs)) if IMITATOR in inputs.config.classical.controllers else []


def _reason(inputs: RunInputs, name: str) -> str:
    behaviour = _by_name(inputs).get(name, "")
    if not behaviour or name in _names(inputs):
        return ""
    return (
        f"a controller that {IMITATOR} fits to the episodes of {behaviour}; add "
        f"`--classical.controllers {IMITATOR}`"
    )


def _imitate(material: Material) -> Made:
    """Imitations of the behaviours that the configuration names, and of the best one."""
    config = material.config
    if material.environment is not None or not config.classical.controllers:
        return Made([], [])
    by_name = _by_name(RunInputs(config, None, material.dataset))
    given = (config.retuning.controller, config.evaluation.incumbent, config.evaluation.candidate)
    named = [by_name[name] for name in given if name in by_name]
    task, part = fit_inputs(material)
    notes, best = [], ""
    if config.retuning.modes and IMITATOR not in config.classical.controllers:
        notes.append(
            f"no behaviour is imitated; add {IMITATOR} to classical.controllers, which imitates "
            "the best one"
        )
    elif config.retuning.modes:
        spec = limited_spec(part.spec, config.limits.cost)
        best, notes = best_behaviour(part, spec, config.evaluation.level)
    candidates: list[Candidate] = []
    chosen = [best] if best else []
    for behaviour in dict.fromkeys([*named, *chosen]):
        own, name = own_episodes(part, behaviour), imitation_name(behaviour)
        try:
            if own.sum() < MIN_EPISODES:
                raise InputError(
                    f"{behaviour} recorded {int(own.sum())} training episodes, and an imitation "
                    f"needs at least {MIN_EPISODES}; imitate another behaviour, or cut the log "
                    "into shorter episodes (length in [episodes] of its plant.toml)"
                )
            rows = part.select_episodes(np.flatnonzero(own)).transitions
            settings = settings_of(config.classical, IMITATOR)
            policy, report = settings.fit(rows, part.spec, task)
        except InputError as error:
            if behaviour in named:
                raise InputError(f"classical controller {name}: {error}") from error
            notes.append(f"{behaviour} is not imitated: {error}")
            continue
        text = f"{IMITATOR} of the episodes of {behaviour}"
        metadata = {"controller": name, "seed": material.seed}
        seeds = (material.seed,)
        candidates.append(Candidate(name, IMITATED, policy, seeds, text, metadata=metadata))
        notes += identification_lines(name, report, task, part.spec)
    return Made(candidates, notes)


IMITATIONS = Family(_names, _imitate, _reason)
