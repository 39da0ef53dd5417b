"""Protocol of a world with several agents."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray


@runtime_checkable
class World(Protocol):
    """A world in which ``n_agents`` agents with the same actions and observations act.

    A plant has a :class:`neorl_core.Spec` and one action vector per step. A world has turns: first
    the world itself changes, and then every agent observes and acts. The caller chooses the order,
    with :func:`strict_turn` or :func:`simultaneous_turn`. All functions are pure and take one
    world; use ``vmap`` for many. The index of an agent may be a traced value.

    Attributes:
        n_agents: Number of agents.
        n_obs: Length of the observation of one agent.
        n_actions: Number of actions of one agent, numbered from zero.
        horizon: Number of turns in an episode, at least one.
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
        """Number of turns in an episode."""
        ...

    def reset(self, key: PRNGKeyArray) -> Any:
        """The state before the first turn."""
        ...

    def draw(self, key: PRNGKeyArray) -> Any:
        """Samples the random numbers of one turn, separately from the rules, to be recordable."""
        ...

    def begin_turn(self, state: Any, draws: Any) -> Any:
        """The state after everything except the agents has changed."""
        ...

    def observe(self, state: Any, agent: int | Int[Array, ""]) -> Float[Array, " obs"]:
        """The current observation of one agent."""
        ...

    def act(
        self, state: Any, agent: int | Int[Array, ""], action: Int[Array, ""]
    ) -> tuple[Any, Float[Array, ""]]:
        """The state after one agent's action, and that agent's reward."""
        ...

    def act_together(
        self, state: Any, actions: Int[Array, " agent"], draws: Any
    ) -> tuple[Any, Float[Array, " agent"]]:
        """The state after simultaneous actions of all agents, and their rewards."""
        ...

    def terminated(self, state: Any) -> Bool[Array, ""]:
        """Whether the episode ends before its last turn."""
        ...
