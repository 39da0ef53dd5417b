"""Classical controllers fitted on the episodes that training sees."""

from typing import Any

from neorl_core import InputError, Policy
from neorl_envs import Dataset
from neorl_train._pipeline.identified import identified_words
from neorl_train.configuration._classical import settings_of, task_of
from neorl_train.configuration._sections import Config
from neorl_train.experience._split import sample_of, training_episodes


def fitted_controllers(
    config: Config, dataset: Dataset, environment: Any
) -> tuple[dict[str, Policy], list[str]]:
    """One policy for every configured controller, and what was identified.

    Where not all episodes fit into a twentieth of ``data.memory``, a sample of them is fitted.

    Args:
        config: Configuration, validated.
        dataset: Complete log, of which the held-out episodes are left out.
        environment: The plant; ``None`` where there is only a log.

    Returns:
        The policies by name, and in words what was identified.

    Raises:
        InputError: If a fit refuses the log or the loops; the controller is named.
    """
    classical = config.classical
    if not classical.controllers:
        return {}, []
    reference = None if environment is None else environment.tunings()[environment.reference]
    task = task_of(classical, dataset.spec, reference)
    part = dataset.select_episodes(sample_of(config, dataset, training_episodes(config, dataset)))
    policies, words = {}, []
    for name in classical.controllers:
        try:
            controller = settings_of(classical, name)
            policies[name], report = controller.fit(part.transitions, dataset.spec, task)
        except InputError as error:
            raise InputError(f"classical controller {name}: {error}") from error
        words += identified_words(name, report, task, dataset.spec)
    return policies, words
