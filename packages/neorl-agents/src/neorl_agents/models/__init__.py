"""Learners that are no policies but serve some: models of the plant, and rollouts in them."""

from neorl_agents.models._dynamics import DynamicsModel as DynamicsModel
from neorl_agents.models._dynamics import PredictedStep as PredictedStep
from neorl_agents.models._rollouts import ModelMemory as ModelMemory
from neorl_agents.models._rollouts import ModelRollouts as ModelRollouts
from neorl_agents.models._rollouts import OneStepModel as OneStepModel

__all__ = ["DynamicsModel", "ModelMemory", "ModelRollouts", "OneStepModel", "PredictedStep"]
