"""Uncertainty and risk: ensembles with calibrated uncertainty, and safety critics of costs."""

from neorl_agents.critics._ensemble import Ensemble as Ensemble
from neorl_agents.critics._ensemble import EnsembleLearner as EnsembleLearner
from neorl_agents.critics._ensemble import Prediction as Prediction
from neorl_agents.critics._ensemble import disagreement as disagreement
from neorl_agents.critics._ensemble import predicted as predicted
from neorl_agents.critics._ensemble_fit import FittedEnsemble as FittedEnsemble
from neorl_agents.critics._ensemble_fit import assess_ensemble as assess_ensemble
from neorl_agents.critics._ensemble_fit import fit_ensemble as fit_ensemble
from neorl_agents.critics._log_rows import NothingToLearnError as NothingToLearnError
from neorl_agents.critics._safety_critic import SafetyCritic as SafetyCritic
from neorl_agents.critics._safety_critic import SafetyCriticLearner as SafetyCriticLearner
from neorl_agents.critics._safety_critic import horizon_curve as horizon_curve
from neorl_agents.critics._safety_critic import horizon_targets as horizon_targets
from neorl_agents.critics._safety_critic import largest_risk as largest_risk
from neorl_agents.critics._safety_critic import limit_risks as limit_risks
from neorl_agents.critics._safety_critic_fit import FittedSafetyCritic as FittedSafetyCritic
from neorl_agents.critics._safety_critic_fit import assess_safety_critic as assess_safety_critic
from neorl_agents.critics._safety_critic_fit import fit_safety_critic as fit_safety_critic

__all__ = [
    "Ensemble",
    "EnsembleLearner",
    "FittedEnsemble",
    "FittedSafetyCritic",
    "NothingToLearnError",
    "Prediction",
    "SafetyCritic",
    "SafetyCriticLearner",
    "assess_ensemble",
    "assess_safety_critic",
    "disagreement",
    "fit_ensemble",
    "fit_safety_critic",
    "horizon_curve",
    "horizon_targets",
    "largest_risk",
    "limit_risks",
    "predicted",
]
