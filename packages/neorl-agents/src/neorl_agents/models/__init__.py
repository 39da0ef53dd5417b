"""Learners without a policy that others build on: plant models, their rollouts, value estimates."""

from neorl_agents.models._dynamics import DynamicsModel as DynamicsModel
from neorl_agents.models._fitted_q import FittedQEvaluation as FittedQEvaluation
from neorl_agents.models._fitted_q import PolicyValue as PolicyValue
from neorl_agents.models._fitted_q import ReturnQuantiles as ReturnQuantiles
from neorl_agents.models._fitted_q import actions_along as actions_along
from neorl_agents.models._fitted_q import with_next_actions as with_next_actions
from neorl_agents.models._history_model import HistoryModel as HistoryModel
from neorl_agents.models._history_model import HistoryModelSettings as HistoryModelSettings
from neorl_agents.models._history_model import fit_history_model as fit_history_model
from neorl_agents.models._log_rows import LogRows as LogRows
from neorl_agents.models._log_rows import log_rows as log_rows
from neorl_agents.models._model_check import ErrorAfterMoves as ErrorAfterMoves
from neorl_agents.models._model_check import ErrorsAhead as ErrorsAhead
from neorl_agents.models._model_check import FreeEpisodes as FreeEpisodes
from neorl_agents.models._model_check import error_after_moves as error_after_moves
from neorl_agents.models._model_check import errors_ahead as errors_ahead
from neorl_agents.models._model_check import free_episodes as free_episodes
from neorl_agents.models._predictions import TERMINATIONS as TERMINATIONS
from neorl_agents.models._predictions import Calibration as Calibration
from neorl_agents.models._predictions import Moments as Moments
from neorl_agents.models._predictions import PredictedStep as PredictedStep
from neorl_agents.models._predictions import newest as newest
from neorl_agents.models._predictions import next_network_inputs as next_network_inputs
from neorl_agents.models._replayed_plant import PredictedEpisodes as PredictedEpisodes
from neorl_agents.models._replayed_plant import ReplayedPlant as ReplayedPlant
from neorl_agents.models._replayed_plant import ReplayedStart as ReplayedStart
from neorl_agents.models._replayed_plant import VisitedRows as VisitedRows
from neorl_agents.models._replayed_plant import every_start as every_start
from neorl_agents.models._replayed_plant import predicted_episodes as predicted_episodes
from neorl_agents.models._replayed_plant import replayed_plant as replayed_plant
from neorl_agents.models._replayed_plant import visited_rows as visited_rows
from neorl_agents.models._rollouts import ModelMemory as ModelMemory
from neorl_agents.models._rollouts import ModelRollouts as ModelRollouts
from neorl_agents.models._rollouts import OneStepModel as OneStepModel
from neorl_agents.models._rollouts import Pessimist as Pessimist
from neorl_agents.models._rollouts import RolloutCutter as RolloutCutter

__all__ = [
    "TERMINATIONS",
    "Calibration",
    "DynamicsModel",
    "ErrorAfterMoves",
    "ErrorsAhead",
    "FittedQEvaluation",
    "FreeEpisodes",
    "HistoryModel",
    "HistoryModelSettings",
    "LogRows",
    "ModelMemory",
    "ModelRollouts",
    "Moments",
    "OneStepModel",
    "Pessimist",
    "PolicyValue",
    "PredictedEpisodes",
    "PredictedStep",
    "ReplayedPlant",
    "ReplayedStart",
    "ReturnQuantiles",
    "RolloutCutter",
    "VisitedRows",
    "actions_along",
    "error_after_moves",
    "errors_ahead",
    "every_start",
    "fit_history_model",
    "free_episodes",
    "log_rows",
    "newest",
    "next_network_inputs",
    "predicted_episodes",
    "replayed_plant",
    "visited_rows",
    "with_next_actions",
]
