"""All controllers of a run that are not tunings of its plant."""

from collections.abc import Mapping
from typing import Any

from neorl_core import Policy, Spec
from neorl_envs import Dataset
from neorl_train.candidates._controller_text import tuning_text
from neorl_train.candidates._family import Material
from neorl_train.candidates._given import unchanged_artefact
from neorl_train.candidates._table import CLASSICAL, make_candidates
from neorl_train.configuration._sections import Config


def has_controllers(config: Config) -> bool:
    """Whether a run fits a classical controller, declares one, or names the incumbent's file."""
    return bool(config.classical.names or config.evaluation.incumbent_file)


def with_controllers(material: Material) -> tuple[Material, dict[str, Policy], list[str]]:
    """Fits, imitates and declares the controllers of a run, and reads the incumbent's file.

    Returns:
        The material with those that may be delivered, all of them by name with the incumbent of a
        file, and a description of the models and of the numbers.

    Raises:
        InputError: If a fit refuses the log, or a file was changed since the run began.
    """
    material, notes = make_candidates(CLASSICAL, material)
    controllers = {candidate.name: candidate.policy for candidate in material.pool.of(*CLASSICAL)}
    today = material.config.evaluation
    if today.incumbent_file:
        file, spec = today.incumbent_file, material.spec
        policy = unchanged_artefact(file, spec, material.digests).policy
        controllers[today.runs_today] = policy
        tuning = tuning_text(policy, spec) or "it declares no tuning parameter"
        notes.append(f"{today.runs_today} (from {file}): {tuning}")
    return material, controllers, notes


def run_controllers(
    config: Config,
    dataset: Dataset | None,
    environment: Any,
    spec: Spec,
    digests: Mapping[str, str],
) -> dict[str, Policy]:
    """The controllers of a run by name, as :func:`with_controllers` returns them."""
    return with_controllers(Material(config, spec, environment, dataset, digests))[1]
