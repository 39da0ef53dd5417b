"""Conservative model-based learning: an actor-critic on short rollouts in a model of the log."""

import equinox as eqx

from neorl_agents import TD3BC
from neorl_agents.learning import Fit
from neorl_agents.models import DynamicsModel, ModelRollouts


class Imagined(TD3BC):
    """TD3+BC on the log and on rollouts in an ensemble, which pay for its disagreement (MOPO).

    Attributes:
        model: The ensemble that is fitted first.
        penalty: Reward that one unit of disagreement takes off, in the unit of the reward.
        model_updates: Updates of the ensemble; static.
        rollout: Steps of a rollout; static.
        starts: Rollouts before every update; static.
        share: Share of the log in every batch; static.
    """

    model: DynamicsModel = DynamicsModel(members=3)
    penalty: float = 1.0
    model_updates: int = eqx.field(static=True, default=2_000)
    rollout: int = eqx.field(static=True, default=3)
    starts: int = eqx.field(static=True, default=32)
    share: float = eqx.field(static=True, default=0.5)

    def fits(self):
        return {"model": Fit(self.model, self.model_updates)}

    def source(self, given):
        return ModelRollouts(
            given,
            self.model,
            penalty=self.penalty,
            steps=self.rollout,
            starts=self.starts,
            share=self.share,
        )
