"""The protocols of policies and environments, shared by all packages."""

from typing import Any, Protocol, TypeVar, runtime_checkable

from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core._vocabulary.channels import Spec
from neorl_core._vocabulary.experience import Step

Carry = TypeVar("Carry")
State = TypeVar("State")
Parameters = TypeVar("Parameters")


@runtime_checkable
class Policy(Protocol):
    """Anything that acts: three pure functions of one observation and one carry.

    Observations and actions are in physical units and one-dimensional; batches are made by ``vmap``
    outside. Once per step the caller reports through :meth:`sent` the action that the plant really
    received, so that a PID does not wind up at a limit, a history policy can store it, and a guard
    can take its previous action from it. If another controller chose that action, the caller
    reports it with :func:`neorl_core.control.follow` instead. For that, a policy may have a fourth
    function ``follow(carry, action)``, as the PID does for bumpless transfer.
    """

    def initial_carry(self) -> Any:
        """The carry at the start of an episode."""
        ...

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray | None
    ) -> tuple[Any, Float[Array, " act"]]:
        """The new carry and the proposed action. Deterministic policies ignore ``key``."""
        ...

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """The carry after the plant received ``action`` (unchanged if nothing depends on it)."""
        ...


@runtime_checkable
class Environment(Protocol):
    """A plant as pure functions. Its parameters are a PyTree, so ``vmap`` randomises them."""

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
        """Simulates one control period. Never resets by itself."""
        ...
