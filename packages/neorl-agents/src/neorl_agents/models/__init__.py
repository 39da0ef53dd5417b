"""Learners that are no policies but serve some: models of the plant, rollouts in them, values."""

from neorl_agents.models._dynamics import DynamicsModel as DynamicsModel
from neorl_agents.models._dynamics import PredictedStep as PredictedStep
from neorl_agents.models._fitted_q import FittedQEvaluation as FittedQEvaluation
from neorl_agents.models._fitted_q import PolicyValue as PolicyValue
from neorl_agents.models._fitted_q import with_next_actions as with_next_actions
from neorl_agents.models._next_actions import actions_along as actions_along
from neorl_agents.models._rollouts import ModelMemory as ModelMemory
from neorl_agents.models._rollouts import ModelRollouts as ModelRollouts
from neorl_agents.models._rollouts import OneStepModel as OneStepModel

__all__ = [
    "DynamicsModel",
    "FittedQEvaluation",
    "ModelMemory",
    "ModelRollouts",
    "OneStepModel",
    "PolicyValue",
    "PredictedStep",
    "actions_along",
    "with_next_actions",
]
