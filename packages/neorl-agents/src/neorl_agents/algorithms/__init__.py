"""One learner a file, beside its paper; the protocol and the table of them."""

from neorl_agents.algorithms._bc import BCState as BCState
from neorl_agents.algorithms._iql import GaussianActor as GaussianActor
from neorl_agents.algorithms._iql import IQLState as IQLState
from neorl_agents.algorithms._protocol import Metrics as Metrics
from neorl_agents.algorithms._td3_bc import TD3BCState as TD3BCState

__all__ = [
    "BCState",
    "GaussianActor",
    "IQLState",
    "Metrics",
    "TD3BCState",
]
