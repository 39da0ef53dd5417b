"""Runs policies: on the plant, on a log, and during training."""

from neorl_train.evaluation._episodes import episodes_of as episodes_of
from neorl_train.evaluation._episodes import recorded_episodes as recorded_episodes
from neorl_train.evaluation._estimates import crossed_estimate as crossed_estimate
from neorl_train.evaluation._estimates import fraction_estimates as fraction_estimates
from neorl_train.evaluation._estimates import mean_estimates as mean_estimates
from neorl_train.evaluation._logged import classical_imitators as classical_imitators
from neorl_train.evaluation._rollout import Rollout as Rollout
from neorl_train.evaluation._rollout import paired_starts as paired_starts
from neorl_train.evaluation._rollout import rollouts as rollouts
from neorl_train.evaluation._shadow import action_fits as action_fits
from neorl_train.evaluation._simulated import evaluate_controllers as evaluate_controllers
from neorl_train.evaluation._summary import policy_rows as policy_rows
from neorl_train.evaluation._summary import pooled_rows as pooled_rows
from neorl_train.evaluation._switched_policy import SwitchedPolicy as SwitchedPolicy
from neorl_train.evaluation._switched_policy import with_one_structure as with_one_structure
from neorl_train.evaluation._traces import select_starts as select_starts
from neorl_train.evaluation._validation import PolicyValidation as PolicyValidation

__all__ = [
    "PolicyValidation",
    "Rollout",
    "SwitchedPolicy",
    "action_fits",
    "classical_imitators",
    "crossed_estimate",
    "episodes_of",
    "evaluate_controllers",
    "fraction_estimates",
    "mean_estimates",
    "paired_starts",
    "policy_rows",
    "pooled_rows",
    "recorded_episodes",
    "rollouts",
    "select_starts",
    "with_one_structure",
]
