"""Parts of every learner: the protocols, the state, the base class, sources and the hot loop.

Import the protocols, ``BaseLearner`` and ``LearnerState`` from ``neorl_agents`` itself.
"""

from neorl_agents.learning._chunk import Training as Training
from neorl_agents.learning._chunk import begin_training as begin_training
from neorl_agents.learning._chunk import train_chunk as train_chunk
from neorl_agents.learning._contract import check_algorithm as check_algorithm
from neorl_agents.learning._contract import require_answer as require_answer
from neorl_agents.learning._contract import require_policy as require_policy
from neorl_agents.learning._limits import counted_cost_unit as counted_cost_unit
from neorl_agents.learning._limits import counted_costs as counted_costs
from neorl_agents.learning._limits import critic_limit_units as critic_limit_units
from neorl_agents.learning._limits import critic_limits as critic_limits
from neorl_agents.learning._limits import episode_costs as episode_costs
from neorl_agents.learning._limits import require_limits_in_log as require_limits_in_log
from neorl_agents.learning._limits import require_moving_actions as require_moving_actions
from neorl_agents.learning._limits import step_limits as step_limits
from neorl_agents.learning._losses import critic_loss as critic_loss
from neorl_agents.learning._losses import held_actions as held_actions
from neorl_agents.learning._losses import regress_actor as regress_actor
from neorl_agents.learning._losses import regression_weights as regression_weights
from neorl_agents.learning._losses import value_metrics as value_metrics
from neorl_agents.learning._losses import weight_metrics as weight_metrics
from neorl_agents.learning._losses import weighted_regression_loss as weighted_regression_loss
from neorl_agents.learning._protocol import Algorithm as Algorithm
from neorl_agents.learning._protocol import Explorer as Explorer
from neorl_agents.learning._protocol import Fit as Fit
from neorl_agents.learning._protocol import Learner as Learner
from neorl_agents.learning._protocol import Metrics as Metrics
from neorl_agents.learning._settings import WHOLE_RUN as WHOLE_RUN
from neorl_agents.learning._settings import Networks as Networks
from neorl_agents.learning._settings import Steps as Steps
from neorl_agents.learning._settings import cosine as cosine
from neorl_agents.learning._settings import for_run as for_run
from neorl_agents.learning._settings import linear as linear
from neorl_agents.learning._settings import require as require
from neorl_agents.learning._settings import require_choice as require_choice
from neorl_agents.learning._settings import require_planned as require_planned
from neorl_agents.learning._settings import unfinished_schedules as unfinished_schedules
from neorl_agents.learning._shell import BaseLearner as BaseLearner
from neorl_agents.learning._source import GivenBatches as GivenBatches
from neorl_agents.learning._source import Log as Log
from neorl_agents.learning._source import Site as Site
from neorl_agents.learning._source import Source as Source
from neorl_agents.learning._source import TrainingKeys as TrainingKeys
from neorl_agents.learning._source import log_tables as log_tables
from neorl_agents.learning._source import reads_costs as reads_costs
from neorl_agents.learning._source import require_log as require_log
from neorl_agents.learning._source import reward_minus_costs as reward_minus_costs
from neorl_agents.learning._source import rows_for as rows_for
from neorl_agents.learning._source import training_keys as training_keys
from neorl_agents.learning._state import LearnerState as LearnerState
from neorl_agents.learning._state import restarted as restarted
from neorl_agents.learning._unit_rows import UnitRows as UnitRows
from neorl_agents.learning._unit_rows import all_batches as all_batches
from neorl_agents.learning._unit_rows import nth_batch as nth_batch
from neorl_agents.learning._unit_rows import only_batch as only_batch
from neorl_agents.learning._unit_rows import unit_rows as unit_rows

__all__ = [
    "WHOLE_RUN",
    "Fit",
    "GivenBatches",
    "Log",
    "Metrics",
    "Networks",
    "Site",
    "Source",
    "Steps",
    "Training",
    "TrainingKeys",
    "UnitRows",
    "all_batches",
    "begin_training",
    "check_algorithm",
    "cosine",
    "counted_cost_unit",
    "counted_costs",
    "critic_limit_units",
    "critic_limits",
    "critic_loss",
    "episode_costs",
    "for_run",
    "held_actions",
    "linear",
    "log_tables",
    "nth_batch",
    "only_batch",
    "reads_costs",
    "regress_actor",
    "regression_weights",
    "require",
    "require_answer",
    "require_choice",
    "require_limits_in_log",
    "require_log",
    "require_moving_actions",
    "require_planned",
    "require_policy",
    "restarted",
    "reward_minus_costs",
    "rows_for",
    "step_limits",
    "train_chunk",
    "training_keys",
    "unfinished_schedules",
    "unit_rows",
    "value_metrics",
    "weight_metrics",
    "weighted_regression_loss",
]
