"""One learner a file, beside its paper; the protocol and the checks of hyperparameters."""

from neorl_agents.algorithms._awac import AWACState as AWACState
from neorl_agents.algorithms._bc import BCState as BCState
from neorl_agents.algorithms._contract import require_answer as require_answer
from neorl_agents.algorithms._contract import require_policy as require_policy
from neorl_agents.algorithms._cql import CQLState as CQLState
from neorl_agents.algorithms._diagnostics import value_metrics as value_metrics
from neorl_agents.algorithms._diagnostics import weight_metrics as weight_metrics
from neorl_agents.algorithms._hyperparameters import require_choice as require_choice
from neorl_agents.algorithms._hyperparameters import require_count as require_count
from neorl_agents.algorithms._hyperparameters import (
    require_critic_learner as require_critic_learner,
)
from neorl_agents.algorithms._hyperparameters import require_flag as require_flag
from neorl_agents.algorithms._hyperparameters import require_number as require_number
from neorl_agents.algorithms._hyperparameters import require_widths as require_widths
from neorl_agents.algorithms._iql import IQLState as IQLState
from neorl_agents.algorithms._memory import encoding_of as encoding_of
from neorl_agents.algorithms._memory import fields_read as fields_read
from neorl_agents.algorithms._memory import require_encoder as require_encoder
from neorl_agents.algorithms._memory import steps_ahead as steps_ahead
from neorl_agents.algorithms._memory import with_history as with_history
from neorl_agents.algorithms._protocol import Metrics as Metrics
from neorl_agents.algorithms._rebrac import ReBRACState as ReBRACState
from neorl_agents.algorithms._sac_n import SACNState as SACNState
from neorl_agents.algorithms._schedules import WHOLE_RUN as WHOLE_RUN
from neorl_agents.algorithms._schedules import cosine as cosine
from neorl_agents.algorithms._schedules import for_run as for_run
from neorl_agents.algorithms._schedules import linear as linear
from neorl_agents.algorithms._schedules import require_planned as require_planned
from neorl_agents.algorithms._schedules import unfinished_schedules as unfinished_schedules
from neorl_agents.algorithms._td3_bc import TD3BCState as TD3BCState
from neorl_agents.algorithms._xql import XQLState as XQLState

__all__ = [
    "WHOLE_RUN",
    "AWACState",
    "BCState",
    "CQLState",
    "IQLState",
    "Metrics",
    "ReBRACState",
    "SACNState",
    "TD3BCState",
    "XQLState",
    "cosine",
    "encoding_of",
    "fields_read",
    "for_run",
    "linear",
    "require_answer",
    "require_choice",
    "require_count",
    "require_critic_learner",
    "require_encoder",
    "require_flag",
    "require_number",
    "require_planned",
    "require_policy",
    "require_widths",
    "steps_ahead",
    "unfinished_schedules",
    "value_metrics",
    "weight_metrics",
    "with_history",
]
