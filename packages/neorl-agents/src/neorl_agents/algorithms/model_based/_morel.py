"""MOReL: a model in which everything unknown is one bad state that is never left."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_agents.algorithms.model_based._soft_rollouts import ENSEMBLE, SoftRollouts
from neorl_agents.learning import LearnerState
from neorl_agents.models import Calibration, DynamicsModel, PredictedStep
from neorl_core.infrastructure import setting


class MOReL(SoftRollouts):
    """Model-based offline RL in a pessimistic plant: steps on which the members disagree halt it.

    A predicted step with ``u(s, a) = max_ij ||m_i - m_j|| > threshold`` ends its episode in a state
    that is never left and pays the log's smallest reward minus ``halt_cost`` for ever:

    ``threshold = mean u + halt_margin (max u - mean u)``, ``r = (r_min - halt_cost) / (1 -
    discount)``

    with rewards in standard deviations of the logged reward (``steps.reward_scale``), and mean and
    maximum over the episodes that the model was not fitted to. If ``discount`` is 1, the horizon
    replaces ``1 / (1 - discount)``. Everything else is inherited from
    :class:`neorl_agents.algorithms.model_based._soft_rollouts.SoftRollouts`.

    Deviations: a soft actor-critic in place of the natural policy gradient (as in unifloral); short
    rollouts from states of the log; held-out rows for the threshold, whereas the paper uses those
    that the members were fitted to; the rewards of the halted plant are summed into one.

    Attributes:
        halt_margin: Position of the threshold between the mean disagreement (0) and the largest of
            the log (1); above one it lies beyond the largest.
        halt_cost: Difference between the log's smallest reward and that of the halted plant, in
            standard deviations of the logged reward.

    The other fields are those of :class:`~neorl_agents.MOPO`, except ``penalty_weight``.

    Source: Kidambi et al., MOReL: model-based offline reinforcement learning, arXiv 2005.05951,
    definitions 1 and 2 and appendix C.
    """

    halt_margin: float = setting(1.0, low=0)
    halt_cost: float = setting(1.0, low=0)
    model: DynamicsModel = replace(ENSEMBLE, uncertainty="discrepancy")

    def imagined(
        self, state: LearnerState, step: PredictedStep, calibration: Calibration
    ) -> tuple[Float[Array, "*row"], Bool[Array, "*row"]]:
        """Rewards of the pessimistic plant, and the steps at which it halts."""
        maps: Any = state.preparation
        halted = step.disagreement > halt_threshold(calibration, self.halt_margin)
        endless = jnp.asarray(self.discount) < 1
        steps = jnp.where(endless, 1 / jnp.where(endless, 1 - self.discount, 1), maps.horizon)
        worst = maps.reward_offset + maps.reward_unit * (maps.reward_range[0] - self.halt_cost)
        return jnp.where(halted, worst * steps, step.reward), step.terminated | halted


def halt_threshold(calibration: Calibration, margin: float | Float[Array, ""]) -> Float[Array, ""]:
    """The disagreement above which a step is unknown.

    ``margin`` is 0 for the mean disagreement of rows that the model was not fitted to, 1 for the
    largest.
    """
    return calibration.mean + margin * (calibration.largest - calibration.mean)
