"""PPO with a controlled multiplier for every cost."""

from collections.abc import Mapping
from typing import Any, ClassVar

from jaxtyping import PRNGKeyArray

from neorl_agents.algorithms.constrained._lagrangian import (
    MultiplierSettings,
    fresh_multipliers,
)
from neorl_agents.algorithms.constrained._rollout_multipliers import GAINS, lagrangian_advantage
from neorl_agents.algorithms.online._ppo import PPO
from neorl_core import Spec


class PPOLag(PPO):
    """PPO whose advantage pays for costs through controlled multipliers.

    One update is one of :class:`PPO` in which the value network also predicts the return of every
    cost, and the actor maximises

    ``A / s - sum_j multiplier_j A_j / s_j``

    with the generalised advantages ``A`` of the reward and ``A_j`` of the costs, each divided by
    the standard deviation of its returns. First, the multiplier of every limit takes one step of a
    PID controller (:func:`neorl_core.costs.pid_multiplier_step`). Its error is the excess of the
    rollout's costs over the limit, as a fraction of the limit and at most one. For a limit per
    episode, the cost is the mean per step times the horizon. For a limit per step, the steps above
    it are counted, and ``multiplier.allowed_violations`` of them are allowed per episode.

    The limits are approached from above, so the learner breaks them during training.

    Attributes:
        multiplier: The controller of the multipliers, with gains per rollout and per fraction of
            the limit.

    The other fields are those of :class:`PPO`.

    Source: Stooke, Achiam and Abbeel, Responsive safety in reinforcement learning by PID
    Lagrangian methods, arXiv 2007.03964. Deviations: the units of advantages and excess, so that
    gains have the same effect on every plant.
    """

    multiplier: MultiplierSettings = GAINS

    keeps_limits: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = (*PPO.reads, "cost")
    rates: ClassVar[Mapping[str, str]] = {**PPO.rates, "multipliers": "learning_rate"}

    penalised_advantage = lagrangian_advantage

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """The networks of PPO, whose value also predicts costs, and multipliers of zero."""
        parameters, targets = super().fresh(spec, key)
        return parameters | {"multipliers": fresh_multipliers(spec.n_cost)}, targets
