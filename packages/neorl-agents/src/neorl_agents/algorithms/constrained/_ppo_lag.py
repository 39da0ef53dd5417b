"""PPO with a controlled price on every cost."""

from collections.abc import Mapping
from typing import Any, ClassVar

from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.algorithms.constrained._lagrangian import (
    MultiplierSettings,
    fresh_multipliers,
    require_multiplier,
)
from neorl_agents.algorithms.constrained._rollout_prices import GAINS, priced_advantage
from neorl_agents.algorithms.online._on_policy import Estimates, ScaledValue
from neorl_agents.algorithms.online._ppo import PPO
from neorl_agents.learning import LearnerState, Metrics, UnitRows
from neorl_core import Spec


class PPOLag(PPO):
    """PPO whose advantage pays for costs, at prices that controllers set.

    One update is one of :class:`PPO` in which the value's network also predicts the return of every
    cost, and the actor climbs

    ``A / s - sum_j multiplier_j A_j / s_j``

    with the generalised advantages ``A`` of the reward and ``A_j`` of the costs, each in units of
    the deviation of its returns. Before, the multiplier of every limit takes one step of a PID
    controller (:func:`neorl_core.costs.pid_multiplier_step`) on how far the costs of the rollout
    are above the limit, as a part of the limit and at most one. A limit per episode is compared
    with the mean cost of a step times the horizon; of a limit per step the steps above it are
    counted, ``multiplier.chance`` of which an episode may have.

    The limits are approached from above: it breaks them while it learns.

    Attributes:
        multiplier: The controller of the multipliers.

    Source: Stooke, Achiam and Abbeel, Responsive safety in reinforcement learning by PID
    Lagrangian methods, arXiv 2007.03964. Deviations: the units of advantages and excess, so that
    gains mean the same on every plant.
    """

    multiplier: MultiplierSettings = GAINS

    keeps_limits: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = (*PPO.reads, "cost")
    rates: ClassVar[Mapping[str, str]] = {**PPO.rates, "multipliers": "learning_rate"}

    def check(self) -> None:
        """Raises a ``ValueError`` that names the first hyperparameter with a bad value."""
        require_multiplier(self)
        super().check()

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """The networks of PPO, whose value also predicts costs, and multipliers of zero."""
        parameters, targets = super().fresh(spec, key)
        return parameters | {"multipliers": fresh_multipliers(spec.n_cost)}, targets

    def priced(
        self, state: LearnerState, rows: UnitRows, about: Estimates, value: ScaledValue
    ) -> tuple[LearnerState, Float[Array, " row"], Metrics]:
        """One step of the multipliers, and the advantage less the prices of the costs."""
        return priced_advantage(self, state, rows, about, value)
