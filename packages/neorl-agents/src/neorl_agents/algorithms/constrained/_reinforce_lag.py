"""REINFORCE with a controlled multiplier for every cost."""

from collections.abc import Mapping
from typing import Any, ClassVar

from jaxtyping import PRNGKeyArray

from neorl_agents.algorithms.constrained._lagrangian import (
    MultiplierSettings,
    fresh_multipliers,
)
from neorl_agents.algorithms.constrained._rollout_multipliers import GAINS, lagrangian_advantage
from neorl_agents.algorithms.online._reinforce import Reinforce
from neorl_core import Spec


class ReinforceLag(Reinforce):
    """REINFORCE whose advantage pays for costs through controlled multipliers.

    One update is one of :class:`Reinforce` in which the baseline network also predicts the return
    of every cost, and the actor maximises the advantage of :class:`PPOLag`, with the same
    controllers and the same limits.

    The limits are approached from above, so the learner breaks them during training.

    Attributes:
        multiplier: The controller of the multipliers, with gains per rollout and per fraction of
            the limit.

    The other fields are those of :class:`Reinforce`.

    Source: the multiplier is that of Stooke, Achiam and Abbeel, arXiv 2007.03964; the combination
    with REINFORCE is not a published learner.
    """

    multiplier: MultiplierSettings = GAINS

    keeps_limits: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = (*Reinforce.reads, "cost")
    rates: ClassVar[Mapping[str, str]] = {**Reinforce.rates, "multipliers": "actor_learning_rate"}

    penalised_advantage = lagrangian_advantage

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """The networks of REINFORCE, whose value also predicts costs, and multipliers of zero."""
        parameters, targets = super().fresh(spec, key)
        return parameters | {"multipliers": fresh_multipliers(spec.n_cost)}, targets
