"""Protocol of environments on which a log can be recorded."""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import PRNGKeyArray

from neorl_core import Environment, Policy
from neorl_envs.recording._operators import OperatorPlan


@runtime_checkable
class Recordable(Environment, Protocol):
    """An environment with controllers, operators and random parameters.

    It must be hashable, because compiled programs take it as a static argument.

    Attributes:
        name: Name and version, such as ``"ChemicalReactor-v0"``. The version increases whenever
            results change.
    """

    name: ClassVar[str]

    def tunings(self) -> Mapping[str, Policy]:
        """The plant's controllers by name; their outputs are in the order of the actions."""
        ...

    def operator_plan(self) -> OperatorPlan:
        """Interventions of the operators during the recording of a log."""
        ...

    def sample_params(
        self, key: PRNGKeyArray, *, preset: str = "plant", spread: float = 0.15
    ) -> Any:
        """Samples the parameters of one episode with the given relative spread."""
        ...
