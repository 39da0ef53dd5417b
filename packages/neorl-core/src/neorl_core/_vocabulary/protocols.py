"""The protocols of policies and environments, which all packages keep."""

from typing import Any, Protocol, TypeVar, runtime_checkable

from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core._vocabulary.channels import Spec
from neorl_core._vocabulary.experience import Step

Carry = TypeVar("Carry")
State = TypeVar("State")
Parameters = TypeVar("Parameters")


@runtime_checkable
class Policy(Protocol):
    """Everything that acts: three pure functions on one observation and one carry.

    Observations and actions are in physical units and of rank one; batches are ``vmap``s
    outside. Once a step the caller reports with :meth:`sent` the action that the plant really
    received, so that a PID does not wind up at a limit, a history policy can store it, and a
    guard can take its previous action from it. Where another controller chose that action, the
    caller reports it with :func:`neorl_core.control.follow` instead: a policy may have a fourth
    function ``follow(carry, action)``, as the PID has for a hand-over without a bump.
    """

    def initial_carry(self) -> Any:
        """The carry of a fresh episode."""
        ...

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray | None
    ) -> tuple[Any, Float[Array, " act"]]:
        """One step: the new carry and the proposed action. Deterministic policies ignore key."""
        ...

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """The carry after the plant received ``action`` (identity where nothing depends on it)."""
        ...


@runtime_checkable
class Environment(Protocol):
    """A plant as pure functions. Parameters are a PyTree, so randomisation is a ``vmap``."""

    @property
    def spec(self) -> Spec:
        """Channels, period and horizon."""
        ...

    def reset(self, params: Any, key: PRNGKeyArray) -> tuple[Any, Float[Array, " obs"]]:
        """The state and first observation of a new episode."""
        ...

    def step(
        self, params: Any, state: Any, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[Any, Step]:
        """One control period. Never resets by itself."""
        ...
