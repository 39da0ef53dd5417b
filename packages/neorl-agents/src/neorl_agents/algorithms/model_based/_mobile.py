"""MOBILE: targets are penalised where the members' next states differ in value."""

from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.algorithms._soft_actor import LOG_STD_RANGE, sample_action
from neorl_agents.algorithms.model_based._soft_rollouts import SoftRollouts
from neorl_agents.learning import WHOLE_RUN, LearnerState, Metrics, UnitRows, cosine
from neorl_agents.models import newest, next_network_inputs
from neorl_agents.networks import q_values
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean


class MOBILE(SoftRollouts):
    """Model-Bellman inconsistency: a soft actor-critic with a penalty on it in the targets.

    For rows that the model predicted, the targets of the critics use the reward

    ``r - penalty_weight std_i (mean_k min_j Q'_j(s'_ik, a'_ik))``

    with the sample standard deviation over members ``i`` of the model, ``n_samples`` next states
    ``s'_ik`` sampled from each, and actions ``a'_ik`` of the policy. Rows of the log keep their
    reward. A disagreement between members is penalised only if it changes the value. Everything
    else is inherited from
    :class:`neorl_agents.algorithms.model_based._soft_rollouts.SoftRollouts`.

    Variants: ``"soft"`` as above, with the entropy of the next action in the targets.
    ``"original"`` is OfflineRL-Kit's script: no entropy in the targets, targets cut off at zero
    (which is wrong if returns are negative), a temperature of at most one, and an actor whose rate
    falls along half a cosine over ``decay_updates``. The learner's page has its settings.

    Deviations: all members of the model are used, not its elites; exogenous observations stay as
    they are in these samples; and those of :class:`MOPO`. In ``"soft"``, **the targets are not cut
    off at zero**, as they are in OfflineRL-Kit and polixir.

    Attributes:
        penalty_weight: Weight of the inconsistency, in units of the critics.
        decay_updates: Updates over which the actor's rate falls to zero; 0 keeps it constant, -1
            stands for the length of the run.
        variant: ``"soft"`` or ``"original"``; static.
        n_samples: Number of next states sampled from every member; static.

    The other fields are those of :class:`~neorl_agents.MOPO`.

    Source: Sun et al., Model-Bellman inconsistency for model-based offline reinforcement learning,
    ICML 2023, equation 9; shares are those of OfflineRL-Kit.
    """

    penalty_weight: float = setting(1.0, low=0)
    n_samples: int = setting(10, low=1, static=True)
    decay_updates: int = setting(0, low=WHOLE_RUN)
    variant: Literal["soft", "original"] = eqx.field(static=True, default="soft")

    schedules: ClassVar[tuple[str, ...]] = ("decay_updates",)

    @property
    def entropy_backup(self) -> bool:
        """Whether the targets include the entropy of the next action."""
        return self.variant != "original"

    @property
    def least_target(self) -> float:
        """Zero in the original."""
        return 0.0 if self.variant == "original" else -jnp.inf

    @property
    def largest_temperature(self) -> float:
        """One in the original."""
        return 1.0 if self.variant == "original" else jnp.inf

    def actor_rate(self, state: LearnerState) -> Float[Array, ""]:
        """Falls along half a cosine over ``decay_updates``."""
        return self.actor_learning_rate * cosine(state.updates, self.decay_updates)

    def reward(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[Float[Array, " batch"], Metrics]:
        """The reward minus the penalty on the inconsistency, in predicted rows."""
        disagreement = inconsistency(self.next_values(state, rows, key))
        predicted = jnp.arange(disagreement.shape[0]) >= self.logged_rows
        predicted_valid = predicted if rows.mask is None else predicted & rows.mask
        metrics = {"inconsistency": masked_mean(disagreement, predicted_valid)}
        return rows.reward - self.penalty_weight * jnp.where(predicted, disagreement, 0), metrics

    def next_values(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> Float[Array, "draw ens batch"]:
        """Values of next states sampled from every member, for the targets of the critics."""
        maps, noise_key, action_key = state.preparation, *jax.random.split(key)
        parameters = state.context["model"].parameters
        change = self.fitted_model().change(parameters, rows.obs, rows.action)
        shape = (self.n_samples, *change.mean.shape)
        noise = jax.random.normal(noise_key, shape, change.mean.dtype)
        obs_now = newest(maps, rows.obs)[None, None]
        next_obs = obs_now + change.mean[None] + change.std[None] * noise
        inputs, action = (
            jnp.broadcast_to(x[None, None], (*shape[:-1], x.shape[-1]))
            for x in (rows.obs, rows.action)
        )
        inputs = next_network_inputs(maps, inputs, action, next_obs)
        flat = inputs.reshape(-1, inputs.shape[-1])
        next_action, _ = sample_action(state.parameters["actor"], flat, action_key, LOG_STD_RANGE)
        q = jnp.min(q_values(state.targets["critics"], flat, next_action), axis=0)
        return q.reshape(shape[:-1])


def inconsistency(values: Float[Array, "draw ens *batch"]) -> Float[Array, "*batch"]:
    """Sample standard deviation over members of the mean over draws: ``std_i (mean_k v_ki)``."""
    has_ensemble = values.shape[1] > 1  # A single member disagrees with none.
    return jnp.std(jnp.mean(values, axis=0), axis=0, ddof=int(has_ensemble))
