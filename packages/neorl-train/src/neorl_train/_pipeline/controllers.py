"""Classical controllers fitted on the episodes that training sees."""

from collections.abc import Iterator
from typing import Any

from neorl_agents.classical import Task
from neorl_core import InputError, Policy
from neorl_envs import Dataset
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
        words += _told(name, report, task)
    return policies, words


def _told(name: str, report: dict[str, Any], task: Task) -> Iterator[str]:
    """What a fit reports, a line for each loop where it is of loops, else one."""
    loops = report.get("loops")
    pairs = zip(task.loops, loops or (), strict=False)
    parts = [(f"{loop.controlled} by {loop.manipulated}: ", found) for loop, found in pairs]
    for where, found in parts or [("", report)]:
        yield f"{name}: {where}" + ", ".join(
            f"{key} {_number(value)}" for key, value in found.items()
        )


def _number(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(map(_number, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
