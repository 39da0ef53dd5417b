"""EDAC: SAC-N with critics that are trained to disagree."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_agents.algorithms._sac_n import SACN
from neorl_agents.learning import Metrics, UnitRows, critic_loss
from neorl_agents.networks import Network, q_values
from neorl_core.infrastructure import setting
from neorl_core.losses import edac_diversity, masked_mean


class EDAC(SACN):
    """Ensemble-diversified actor-critic: :class:`SACN` with one more term in the critics' loss.

    The term is ``diversity_weight mean_s sum_{i != j} cos(g_i, g_j) / (n_critics - 1)`` with
    ``g_i = dQ_i(s, a) / da`` at the logged action. Critics whose gradients point apart disagree
    away from the data, so fewer of them are needed for the same pessimism.

    Attributes:
        diversity_weight: The ``eta`` of the paper; 1 for most of its tasks, 5 if
            few critics are used on narrow data. 0 is SAC-N.

    The other fields are those of :class:`SACN`.

    Source: An et al., Uncertainty-based offline reinforcement learning with diversified
    Q-ensemble, arXiv 2110.01548, equation 5.
    """

    diversity_weight: float = setting(1.0, low=0)

    def critic_loss(
        self, critics: Network, rows: UnitRows, target: Float[Array, " batch"]
    ) -> tuple[Float[Array, ""], tuple[Array, Metrics]]:
        """The squared errors, summed over the critics, and the diversity term."""
        loss, q = critic_loss(critics, rows, target)

        def action_gradients(critic: Network) -> Float[Array, "batch act"]:
            return jax.grad(_sum_of_values)(rows.action, critic, rows.obs)

        gradients = jnp.swapaxes(jax.vmap(action_gradients)(critics), 0, 1)
        diversity_term = masked_mean(jax.vmap(edac_diversity)(gradients), rows.mask)
        return loss + self.diversity_weight * diversity_term, (
            q,
            {"diversity_term": diversity_term},
        )


def _sum_of_values(
    action: Float[Array, "batch act"], critic: Network, obs: Float[Array, "batch obs"]
) -> Float[Array, ""]:
    one_critic = jax.tree.map(lambda leaf: leaf[None], critic)
    return jnp.sum(q_values(one_critic, obs, action))
