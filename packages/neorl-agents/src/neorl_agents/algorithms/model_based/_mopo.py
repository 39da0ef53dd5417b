"""MOPO: rollouts in a model, with rewards penalised by the model's uncertainty."""

from dataclasses import replace
from typing import Any

from jaxtyping import Array, Bool, Float

from neorl_agents.algorithms.model_based._soft_rollouts import ENSEMBLE, SoftRollouts
from neorl_agents.learning import LearnerState
from neorl_agents.models import DynamicsModel, PredictedStep
from neorl_core.infrastructure import setting


class MOPO(SoftRollouts):
    """Model-based offline policy optimisation: a soft actor-critic in a penalised model.

    The learner is trained on every predicted step with the reward

    ``r - penalty_weight u(s, a)``

    with ``r`` in standard deviations of the logged reward (``steps.reward_scale``), and the model's
    uncertainty ``u`` over all predicted channels, each in standard deviations of its logged values.
    Everything else is inherited from
    :class:`neorl_agents.algorithms.model_based._soft_rollouts.SoftRollouts`.

    Variants of ``model.uncertainty``: ``"aleatoric"``, the paper's ``max_i ||std_i||``;
    ``"discrepancy"``, ``max_ij ||mean_i - mean_j||``, which detects better where the log has no
    data (Lu et al., arXiv 2110.04135); ``"disagreement"``, the members' root mean square deviation
    from their mean.

    Deviations: those of the model (:class:`DynamicsModel`), such as its linear part; rewards are
    divided by their standard deviation, so that a weight has the same effect on every plant; the
    buffer holds the rows of 2,500 updates instead of 5,000; rollouts have five steps (the scripts
    of MOPO and MOBILE: one), and 20 predicted rows come with every update (there 50 for each step
    of a rollout); rates of actor and temperature are larger (see below); and those common to all
    learners (:class:`neorl_agents.learning.BaseLearner`).

    Attributes:
        penalty_weight: Weight of the uncertainty, in standard deviations of the reward per unit of
            ``u``.
        discount: Discount of the reward per step.
        tau: Fraction by which the target critics move.
        target_entropy: Target of the policy's entropy in nats per action channel.
        actor_learning_rate: Learning rate of the actor.
        critic_learning_rate: Learning rate of the critics.
        temperature_learning_rate: Learning rate of the entropy's temperature.
        model_updates: Updates of the model before the first one of the learner; static.
        model: The model and how it is fitted; its window is that of ``networks``.
        rollouts: The rollouts in the model.

    Source: Yu et al., MOPO: model-based offline policy optimization, arXiv 2005.13239, algorithm 2.
    The rate of the critics and the shares are those of OfflineRL-Kit.
    """

    penalty_weight: float = setting(1.0, low=0)
    model: DynamicsModel = replace(ENSEMBLE, uncertainty="aleatoric")

    def imagined(
        self, state: LearnerState, step: PredictedStep, calibration: Any
    ) -> tuple[Float[Array, "*row"], Bool[Array, "*row"]]:
        """The penalised reward of predicted steps, in its own unit, and where they terminate."""
        penalty = self.penalty_weight * state.preparation.reward_unit * step.disagreement
        return step.reward - penalty, step.terminated
