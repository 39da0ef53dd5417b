"""COMBO: conservative values in states that the model predicted."""

from dataclasses import replace
from functools import partial
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.algorithms._soft_actor import LOG_STD_RANGE, sampled_actions
from neorl_agents.algorithms.model_based._soft_rollouts import (
    Rollouts,
    SoftRollouts,
)
from neorl_agents.learning import (
    LearnerState,
    Metrics,
    UnitRows,
)
from neorl_agents.networks import Network, q_values, sampled_q_values
from neorl_core.infrastructure import setting
from neorl_core.losses import combo_regulariser, cql_regulariser, masked_mean


class COMBO(SoftRollouts):
    """Conservative offline model-based policy optimisation, without a penalty on the model.

    Instead the critics value actions in states of the model below those of the log:

    ``sum_i mean (Q_i(s, a) - y)^2 + conservative_weight (mean_model logsumexp_j (Q_i(s, a_j) - log
    mu(a_j)) - mean_log Q_i(s, a))``

    with ``n_samples`` actions ``a_j`` from each of a uniform distribution, the policy in the state
    and the policy in the next state, and ``y = r + discount (1 - terminated) min_i Q'_i(s', a')``.
    Half of every batch comes from the log. Everything else is inherited from
    :class:`neorl_agents.algorithms.model_based._soft_rollouts.SoftRollouts`.

    Variants: ``states="mix"`` takes the soft maximum over all rows of a batch, as OfflineRL-Kit
    does by default, ``"model"`` only over predicted rows, as in the paper.

    Deviations: those of :class:`MOPO` except for its penalty; the soft maximum is over all samples
    (OfflineRL-Kit drops a reshape, so that its one is over three at a time); the critics take their
    step before the actor (there after it).

    Attributes:
        conservative_weight: Weight of the conservative term.
        n_samples: Actions from each of the three distributions; static.
        states: ``"mix"`` or ``"model"``; static.

    The other fields are those of :class:`~neorl_agents.MOPO`, except ``penalty_weight``.

    Source: Yu et al., COMBO: conservative offline model-based policy optimization, arXiv
    2102.08363, equation 4. The rate of the critics and the shares are those of
    OfflineRL-Kit.
    """

    conservative_weight: float = setting(5.0, low=0)
    n_samples: int = setting(10, low=1, static=True)
    states: Literal["mix", "model"] = eqx.field(static=True, default="mix")
    rollouts: Rollouts = replace(Rollouts(), share=0.5)

    @property
    def entropy_backup(self) -> bool:
        """No entropy in the targets, as in OfflineRL-Kit's script."""
        return False

    def critic_step(
        self, state: LearnerState, rows: UnitRows, target: Float[Array, " batch"], key: PRNGKeyArray
    ) -> tuple[LearnerState, Float[Array, ""], tuple[Float[Array, " batch"], Metrics]]:
        """Takes one gradient step on squared errors and conservative terms, summed over critics."""
        actor = state.parameters["actor"]
        samples = sampled_actions(actor, rows, key, self.n_samples, LOG_STD_RANGE)
        index = jnp.arange(rows.reward.shape[0])
        valid = jnp.ones_like(index, bool) if rows.mask is None else rows.mask
        logged = valid & (index < self.logged_rows)
        model_states = valid if self.states == "mix" else valid & (index >= self.logged_rows)
        loss = partial(conservative_loss, weight=self.conservative_weight)
        return self.descend(state, "critics", loss, rows, target, samples, logged, model_states)


def conservative_loss(
    critics: Network,
    rows: UnitRows,
    target: Float[Array, " batch"],
    samples: tuple[Float[Array, "batch sample act"], Float[Array, "batch sample"]],
    logged: Array,
    model_states: Array,
    *,
    weight: float | Float[Array, ""],
) -> tuple[Float[Array, ""], tuple[Float[Array, " batch"], Metrics]]:
    """The loss of :class:`COMBO`, the mean value of every row, and the mean conservative term.

    Values are raised in the ``logged`` rows and lowered in ``model_states``.
    """
    actions, log_prob = samples
    q = q_values(critics, rows.obs, rows.action)
    q_samples = sampled_q_values(critics, rows.obs, actions)
    densities = jnp.broadcast_to(log_prob[None], q_samples.shape)
    soft_values = cql_regulariser(jnp.zeros_like(q), q_samples, densities)
    terms = jax.vmap(combo_regulariser, in_axes=(0, 0, None, None))(
        q, soft_values, logged, model_states
    )
    errors = jnp.sum(jnp.square(q - target[None, :]), axis=0)
    loss = masked_mean(errors, rows.mask) + weight * jnp.sum(terms)
    return loss, (jnp.mean(q, axis=0), {"conservative_term": jnp.mean(terms)})
