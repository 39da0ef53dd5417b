"""Learning in a model without pessimism: many small members, and rollouts that end in doubt."""

from dataclasses import replace

import equinox as eqx

from neorl_agents import MOPO
from neorl_agents.learning import WHOLE_RUN, Networks, Steps
from neorl_agents.models import DynamicsModel

MEMBERS = DynamicsModel(
    members=32,
    uncertainty="disagreement",
    learning_rate=2e-3,
    decay_updates=WHOLE_RUN,
    networks=Networks(hidden=(32, 32), layer_norm="yes"),
    steps=Steps(batch_size=128),
)
"""Many small networks with layer norm, all of which predict."""


class Neubay(MOPO):
    """A soft actor-critic on long rollouts, which stop where the members' spread is unusual.

    No reward is lowered. A rollout stops after a step whose disagreement exceeds that of a share
    ``quantile`` of the held-out rows of the log, and values bootstrap from where it stopped.

    Deviations from the paper, of which this is the idea alone: 32 members in place of 128, a linear
    part in each, and rollouts of at most 50 steps. The agent remembers where ``networks.encoder``
    is set, such as to ``"gru"``.

    Attributes:
        quantile: Share of the held-out rows whose disagreement a rollout may reach, 0 to 1.

    The other fields are those of :class:`~neorl_agents.MOPO`.

    Source: Ni et al., Long-horizon model-based offline reinforcement learning without conservatism,
    arXiv 2512.04341.
    """

    quantile: float = 0.99
    penalty_weight: float = 0.0
    model: DynamicsModel = MEMBERS
    rollouts: eqx.Module = replace(MOPO().rollouts, length=50, starts=40)

    def cut(self, state, step, calibration):
        return step.disagreement > calibration.quantile(self.quantile)
