"""Learners that are no policies but serve some: models of the plant, and rollouts in them."""

from neorl_agents.models._dynamics import DynamicsModel as DynamicsModel
from neorl_agents.models._dynamics import PredictedStep as PredictedStep

__all__ = ["DynamicsModel", "PredictedStep"]
