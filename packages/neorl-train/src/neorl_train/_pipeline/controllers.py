"""Classical controllers fitted on the episodes that training sees."""

from typing import Any

from neorl_core import InputError, Policy
from neorl_envs import Dataset
from neorl_train.configuration._classical import settings_of, task_of
from neorl_train.configuration._sections import Config
from neorl_train.experience._split import sample_of, training_episodes


def fitted_controllers(config: Config, dataset: Dataset, environment: Any) -> dict[str, Policy]:
    """One policy for every configured controller, by its name.

    Where not all episodes fit into a twentieth of ``data.memory``, a sample of them is fitted.

    Args:
        config: Configuration, validated.
        dataset: Complete log, of which the held-out episodes are left out.
        environment: The plant; ``None`` where there is only a log.

    Raises:
        InputError: If a fit refuses the log or the loops; the controller is named.
    """
    classical = config.classical
    if not classical.controllers:
        return {}
    reference = None if environment is None else environment.tunings()[environment.reference]
    task = task_of(classical, dataset.spec, reference)
    part = dataset.select_episodes(sample_of(config, dataset, training_episodes(config, dataset)))
    policies = {}
    for name in classical.controllers:
        try:
            controller = settings_of(classical, name)
            policies[name] = controller.fit(part.transitions, dataset.spec, task).policy
        except InputError as error:
            raise InputError(f"classical controller {name}: {error}") from error
    return policies
