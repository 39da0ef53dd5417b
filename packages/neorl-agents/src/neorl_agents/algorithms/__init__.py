"""One learner a file, beside its paper; the protocol and the checks of hyperparameters."""

from neorl_agents.algorithms._bc import BCState as BCState
from neorl_agents.algorithms._hyperparameters import require_choice as require_choice
from neorl_agents.algorithms._hyperparameters import require_count as require_count
from neorl_agents.algorithms._hyperparameters import require_number as require_number
from neorl_agents.algorithms._hyperparameters import require_widths as require_widths
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
    "require_choice",
    "require_count",
    "require_number",
    "require_widths",
]
