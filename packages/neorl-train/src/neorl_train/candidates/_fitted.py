"""Classical controllers that are fitted on the training episodes of the log."""

from neorl_agents.classical import Task
from neorl_core import InputError
from neorl_envs import Dataset
from neorl_train.candidates._controller_text import identification_lines
from neorl_train.candidates._family import Family, Made, Material, RunInputs
from neorl_train.configuration._classical import settings_of, task_of
from neorl_train.data._experience import training_sample
from neorl_train.judging._pool import Candidate

FITTED = "fitted"
"""Family of the controllers of ``classical.controllers``."""


def fit_inputs(material: Material) -> tuple[Task, Dataset]:
    """The loops to fit, and the training episodes.

    If not all episodes fit into a twentieth of ``data.memory``, a sample of them is used.
    """
    config, environment, dataset = material.config, material.environment, material.dataset
    assert dataset is not None  # controllers are fitted on a log
    reference = None if environment is None else environment.tunings()[environment.reference]
    part = training_sample(config.data, dataset)
    return task_of(config.classical, dataset.spec, reference), part


def _names(inputs: RunInputs) -> tuple[str, ...]:
    return inputs.config.classical.controllers


def _fit(material: Material) -> Made:
    """One policy for every configured controller; the notes describe the identified models."""
    classical = material.config.classical
    candidates: list[Candidate] = []
    notes: list[str] = []
    if not classical.controllers or material.dataset is None:
        return Made(candidates, notes)
    task, part = fit_inputs(material)
    spec, seed = part.spec, material.seed
    for name in classical.controllers:
        try:
            policy, report = settings_of(classical, name).fit(part.transitions, spec, task)
        except InputError as error:
            raise InputError(f"classical controller {name}: {error}") from error
        metadata = {"controller": name, "seed": seed}
        candidates.append(Candidate(name, FITTED, policy, (seed,), metadata=metadata))
        notes += identification_lines(name, report, task, spec)
    return Made(candidates, notes)


IDENTIFIED = Family(_names, _fit)
