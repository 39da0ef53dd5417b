"""Choice of the best of several actions that fits a budget."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_agents.networks._kinds import Network


class BudgetedChoice(eqx.Module):
    """Chooses, among the actions of several heads, the most valuable one whose costs fit a budget.

    An action fits if ``max_i Qc_ji(s, a) <= budget_j cost_value_j`` for every cost ``j``. Among
    those that fit, the one with the largest ``min_i Q_i(s, a)`` is chosen. If none fits, it is the
    one whose worst cost exceeds its allowance by the smallest fraction.

    Attributes:
        heads: Network of the actions in [-1, 1], head by head.
        critics: Stacked networks of the value of ``[s, a]``.
        cost_critics: The same for the costs: member by member, and within each cost by cost.
        budget: Allowed sum of each cost in an episode, in the unit of the cost; for a cost with a
            limit per step, the number of steps above it. It may be replaced at any time.
        cost_value: Change of a cost critic's value per unit of its budget.
        n_action: Number of action channels; static.
    """

    heads: Network
    critics: Network
    cost_critics: Network
    budget: Float[Array, " cost"]
    cost_value: Float[Array, " cost"]
    n_action: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " act"]:
        """The action in [-1, 1] for one input."""
        actions = self.heads(x).reshape(-1, self.n_action)
        inputs = jnp.concatenate([jnp.stack([x] * len(actions)), actions], axis=-1)
        values = jnp.min(jax.vmap(_value, in_axes=(0, None))(self.critics, inputs), axis=0)
        costs = jax.vmap(_value, in_axes=(0, None))(self.cost_critics, inputs)
        costs = jnp.max(costs.reshape(-1, len(self.budget), len(actions)), axis=0)
        allowed = (self.budget * self.cost_value)[:, None]
        # There are no fractions of an allowance of zero, so the excess itself is used.
        divisor = jnp.where(allowed > 0, allowed, 1)
        excess = jnp.max((costs - allowed) / divisor, axis=0)
        is_within = excess <= 0
        best = jnp.argmax(jnp.where(is_within, values, -jnp.inf))
        chosen = jnp.where(jnp.any(is_within), best, jnp.argmin(excess))
        is_chosen = jnp.arange(len(actions)) == chosen
        return jnp.sum(jnp.where(is_chosen[:, None], actions, 0), axis=0)

    @property
    def n_outputs(self) -> int:
        """Length of the last axis of the result."""
        return self.n_action


def _value(critic: Network, inputs: Float[Array, "row in"]) -> Float[Array, " row"]:
    return critic(inputs)[..., 0]
