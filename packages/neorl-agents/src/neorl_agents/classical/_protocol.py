"""Protocol of a classical controller, and the result of a fit."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from neorl_agents.classical._task import Task
from neorl_core import Policy, Spec, Transition


class Fitted(NamedTuple):
    """A controller fitted on a log.

    Attributes:
        policy: Ready to act, in physical units; batches are a ``vmap`` outside.
        report: What was identified and chosen, ready for JSON: gains, delays, shares of variance.
            Under ``doubts`` sentences that speak against it; of loops each has its own, in
            ``loops``.
    """

    policy: Policy
    report: dict[str, Any]


@runtime_checkable
class ClassicalController(Protocol):
    """A frozen object whose fields are its settings, as plain numbers and words."""

    def fit(self, log: Transition, spec: Spec, task: Task) -> Fitted:
        """Fits the controller to a log.

        Args:
            log: Flat columns in physical units; rows of one episode follow one another, and its
                last row is terminated or truncated.
            spec: Channels of the log.
            task: What is controlled by what, and the set-points.

        Returns:
            The policy and what was found.

        Raises:
            InputError: If a setting, the task or the log cannot be used; it is named.
        """
        ...
