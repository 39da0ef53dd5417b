"""Protocol of a world with several agents."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray


@runtime_checkable
class World(Protocol):
    """A world in which ``n_agents`` agents with the same actions and views act, one episode long.

    A plant has one :class:`neorl_core.Spec` and one action vector a step; a world has a turn, in
    which the world itself changes first and every agent then observes and acts. Whoever steps a
    world chooses the order: :func:`strict_turn` or :func:`simultaneous_turn`. All functions are
    pure and take one world; many worlds are a ``vmap``. Agents may be numbered by traced values.

    Attributes:
        n_agents: Number of agents.
        n_obs: Length of the observation of one agent.
        n_actions: Number of actions of one agent, numbered from zero.
        horizon: Turns of one episode, at least one.
    """

    @property
    def n_agents(self) -> int:
        """Number of agents."""
        ...

    @property
    def n_obs(self) -> int:
        """Length of the observation of one agent."""
        ...

    @property
    def n_actions(self) -> int:
        """Number of actions of one agent."""
        ...

    @property
    def horizon(self) -> int:
        """Turns of one episode."""
        ...

    def reset(self, key: PRNGKeyArray) -> Any:
        """The state before the first turn."""
        ...

    def draw(self, key: PRNGKeyArray) -> Any:
        """The random numbers of one turn, apart from the rules, so that they can be recorded."""
        ...

    def begin_turn(self, state: Any, draws: Any) -> Any:
        """The state after everything but the agents has changed."""
        ...

    def observe(self, state: Any, agent: int | Int[Array, ""]) -> Float[Array, " obs"]:
        """The present observation of one agent."""
        ...

    def act(
        self, state: Any, agent: int | Int[Array, ""], action: Int[Array, ""]
    ) -> tuple[Any, Float[Array, ""]]:
        """The state after one agent's action, and that agent's reward."""
        ...

    def act_together(
        self, state: Any, actions: Int[Array, " agent"], draws: Any
    ) -> tuple[Any, Float[Array, " agent"]]:
        """The state after the actions of all agents at one moment, and their rewards."""
        ...

    def terminated(self, state: Any) -> Bool[Array, ""]:
        """Whether the episode is over before its last turn."""
        ...
