"""Implicit Q-learning on the reward minus costs priced by controlled multipliers."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from neorl_agents.algorithms._iql import IQL
from neorl_agents.algorithms.constrained._lagrangian import (
    RATES,
    MultiplierSettings,
    cost_critic_loss,
    cost_targets,
    multiplier_step,
    with_cost_critics,
)
from neorl_agents.learning import LearnerState, Metrics, UnitRows, counted_costs, only_batch
from neorl_core import Spec


class IQLLag(IQL):
    """Implicit Q-learning whose reward pays for costs through controlled multipliers.

    One update is one of :class:`IQL` with the reward

    ``(r - sum_j multiplier_j c_j) / (1 + sum_j multiplier_j)``,

    then a step of two critics for every cost towards the cost of the **actor**, with ``m`` its
    mean: ``c_j + discount (1 - terminated) max_i Qc'_ji(s', m(s'))``, and a step of the multiplier
    of every limit on ``e_j = mean max_i Qc_ji(s, m(s)) - d_j``, as in
    :class:`~neorl_agents.TD3BCLag`. The controllers find the cost weights that a user of IQL would
    set by hand, so that the predicted cost meets the limit.

    The critics of the reward follow the moving multipliers with a delay, so gains much larger than
    the defaults make them oscillate.

    Attributes:
        multiplier: The controller of the multipliers.

    The other fields are those of :class:`IQL`.

    Source: that of :class:`IQL` and of :class:`~neorl_agents.TD3BCLag`; the combination is not a
    published learner. The evaluation of the actor's costs is fitted Q evaluation (Le, Voloshin and
    Yue, Batch policy learning under constraints, arXiv 1903.08738).
    """

    multiplier: MultiplierSettings = MultiplierSettings()

    keeps_limits: ClassVar[bool] = True
    supports_n_step: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = (*IQL.reads, "cost")
    rates: ClassVar[Mapping[str, str]] = {**IQL.rates, **RATES}

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """The networks of IQL, two critics for every cost, and multipliers of zero."""
        return with_cost_critics(self, spec, key, super().fresh(spec, key))

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one update of IQL, one step of the cost critics and one of the multipliers."""
        multipliers = state.parameters["multipliers"].value
        cost_penalty = counted_costs(state.preparation, rows.cost) @ multipliers
        penalised_rows = rows._replace(
            reward=(rows.reward - cost_penalty) / (1 + jnp.sum(multipliers))
        )
        state, metrics = super().learn(state, penalised_rows, key)
        # These bounds are those of the reward without the priced costs.
        metrics = {name: x for name, x in metrics.items() if name != "q_beyond_rewards"}

        row, mean = only_batch(rows), state.parameters["actor"].mean
        target = cost_targets(state, row, mean(row.next_obs), self.discount)
        state, loss, cost_q = self.descend(state, "cost_critics", cost_critic_loss, row, target)
        state, control = multiplier_step(self, state, row, mean(row.obs))
        state = state.with_averaged_targets("cost_critics", tau=self.tau)
        return state, {**metrics, "cost_loss": loss, "cost_q": cost_q, **control}
