"""Protocol of a classical controller, and the result of a fit."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from neorl_agents.classical._task import Task
from neorl_core import Policy, Spec, Transition


class FittedController(NamedTuple):
    """A controller fitted on a log.

    Attributes:
        policy: The controller in physical units, ready to run; use ``vmap`` for batches.
        report: The identified model and the chosen settings, ready for JSON: gains, delays,
            fractions of variance. Warnings about the fit are under ``warnings``; those of a single
            loop are in its entry of ``loops``.
    """

    policy: Policy
    report: dict[str, Any]


@runtime_checkable
class ClassicalController(Protocol):
    """A frozen object whose fields are its settings, as plain numbers and words."""

    def fit(self, log: Transition, spec: Spec, task: Task) -> FittedController:
        """Fits the controller to a log.

        Args:
            log: Flat columns in physical units; rows of one episode follow one another, and its
                last row is terminated or truncated.
            spec: Channels of the log.
            task: The loops, with controlled and manipulated channels and setpoints.

        Returns:
            The policy and the report of the fit.

        Raises:
            InputError: If a setting, the task or the log cannot be used; the message names it.
        """
        ...
