"""Control laws that run: the results of ``neorl_agents.classical``'s fits, as pure policies."""

from neorl_agents.controllers._linear_quadratic import Estimator as Estimator
from neorl_agents.controllers._linear_quadratic import EstimatorCarry as EstimatorCarry
from neorl_agents.controllers._linear_quadratic import (
    LinearQuadraticPolicy as LinearQuadraticPolicy,
)
from neorl_agents.controllers._linear_quadratic import SteadyTarget as SteadyTarget
from neorl_agents.controllers._pid_loops import SmithCarry as SmithCarry
from neorl_agents.controllers._pid_loops import SmithPredictor as SmithPredictor
from neorl_agents.controllers._pid_loops import TrackingPID as TrackingPID
from neorl_agents.controllers._pid_loops import pid_policy as pid_policy
from neorl_agents.controllers._predictive import Plan as Plan
from neorl_agents.controllers._predictive import PredictiveCarry as PredictiveCarry
from neorl_agents.controllers._predictive import PredictivePolicy as PredictivePolicy
from neorl_agents.controllers._predictive import QuadraticProgram as QuadraticProgram
from neorl_agents.controllers._predictive import Solution as Solution

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
