"""Settings of a learner that change when its training continues online."""

from dataclasses import replace
from typing import Any, TypeVar

from neorl_agents.learning import Explorer
from neorl_agents.sampling import Rows, RowsWithReturns
from neorl_core import InputError
from neorl_core.infrastructure import unknown_name

OFFLINE = "offline"
"""The variant that keeps the hyperparameters of the offline training."""

Learner = TypeVar("Learner")


def require_fine_tunable(algorithm: Any) -> None:
    """Refuses a learner that cannot be fine-tuned online.

    It needs ``explore(state)``, its exploration policy, ``fine_tuning``, its settings by the name
    of the variant, and batches of single rows.

    Args:
        algorithm: Any learner.

    Raises:
        InputError: If it lacks one of these; the message names the learner and what it lacks.
    """
    name = type(algorithm).__name__
    if not isinstance(algorithm, Explorer) or not algorithm.fine_tuning:
        missing = "explore" if not hasattr(algorithm, "explore") else "fine_tuning"
        raise InputError(
            f"{name} cannot be fine-tuned online, because it has no {missing}; among the learners "
            "of this package IQL, CalQL and ReBRAC can be"
        )
    if not isinstance(algorithm.sampler, Rows | RowsWithReturns):
        raise InputError(
            f"{name} cannot be fine-tuned online, because its sampler needs more than the single "
            "rows of the online buffer; choose settings with single rows, or IQL, CalQL or ReBRAC"
        )


def for_fine_tuning(algorithm: Learner, variant: str = "original") -> Learner:
    """The learner with its settings for online training.

    Args:
        algorithm: Learner with plain numbers as fields, as it was trained offline.
        variant: One of the learner's ``fine_tuning``, or ``"offline"`` to change nothing.

    Returns:
        The same learner with those fields replaced; a schedule of length -1 is then set to the
        length of the fine-tuning (:func:`neorl_agents.learning.for_run`).

    Raises:
        InputError: If the learner cannot be fine-tuned, or has no such variant.

    Example:
        >>> from neorl_agents import ReBRAC
        >>> online = for_fine_tuning(ReBRAC(actor_weight=0.1))
        >>> online.actor_weight, online.critic_weight, online.final_weight
        (0.1, 0.0, 0.5)
    """
    require_fine_tunable(algorithm)
    settings: Any = algorithm
    known = {OFFLINE: {}, **settings.fine_tuning}
    if variant not in known:
        raise unknown_name(f"variant of fine-tuning {type(algorithm).__name__}:", variant, known)
    return replace(settings, **known[variant])
