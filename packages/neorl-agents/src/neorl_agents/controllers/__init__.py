"""Control laws that run: the results of ``neorl_agents.classical``'s fits, as pure policies."""

from neorl_agents.controllers._estimator import Estimator as Estimator
from neorl_agents.controllers._estimator import EstimatorCarry as EstimatorCarry
from neorl_agents.controllers._estimator import SteadyTarget as SteadyTarget
from neorl_agents.controllers._linear_quadratic import (
    LinearQuadraticPolicy as LinearQuadraticPolicy,
)
from neorl_agents.controllers._predictive import Plan as Plan
from neorl_agents.controllers._predictive import PredictiveCarry as PredictiveCarry
from neorl_agents.controllers._predictive import PredictivePolicy as PredictivePolicy
from neorl_agents.controllers._quadratic_program import QuadraticProgram as QuadraticProgram
from neorl_agents.controllers._quadratic_program import Solution as Solution
from neorl_agents.controllers._smith_predictor import SmithCarry as SmithCarry
from neorl_agents.controllers._smith_predictor import SmithPredictor as SmithPredictor
from neorl_agents.controllers._tracking_pid import TrackingPID as TrackingPID
from neorl_agents.controllers._tracking_pid import pid_policy as pid_policy

__all__ = [
    "Estimator",
    "EstimatorCarry",
    "LinearQuadraticPolicy",
    "Plan",
    "PredictiveCarry",
    "PredictivePolicy",
    "QuadraticProgram",
    "SmithCarry",
    "SmithPredictor",
    "Solution",
    "SteadyTarget",
    "TrackingPID",
    "pid_policy",
]
