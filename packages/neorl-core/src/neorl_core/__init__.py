"""Pure JAX mathematics for offline reinforcement learning and process control."""

from neorl_core._advantage_weights import advantage_weights as advantage_weights
from neorl_core._advantage_weights import scaled_advantage as scaled_advantage
from neorl_core._arrays import as_arrays as as_arrays
from neorl_core._bootstrap import bootstrap_interval as bootstrap_interval
from neorl_core._bootstrap import bootstrap_replicates as bootstrap_replicates
from neorl_core._channels import Channel as Channel
from neorl_core._channels import CostChannel as CostChannel
from neorl_core._channels import Spec as Spec
from neorl_core._channels import highs as highs
from neorl_core._channels import lows as lows
from neorl_core._channels import spec_from_dict as spec_from_dict
from neorl_core._channels import spec_to_dict as spec_to_dict
from neorl_core._crossed_interval import crossed_interval as crossed_interval
from neorl_core._data_statistics import DataStatistics as DataStatistics
from neorl_core._data_statistics import FieldStatistics as FieldStatistics
from neorl_core._diagonal_gaussian import (
    diagonal_gaussian_log_density as diagonal_gaussian_log_density,
)
from neorl_core._expectile import expectile_loss as expectile_loss
from neorl_core._experience import Step as Step
from neorl_core._experience import Trajectory as Trajectory
from neorl_core._experience import Transition as Transition
from neorl_core._intervals import Interval as Interval
from neorl_core._intervals import paired_difference_interval as paired_difference_interval
from neorl_core._intervals import student_interval as student_interval
from neorl_core._masked_mean import masked_mean as masked_mean
from neorl_core._moments import Moments as Moments
from neorl_core._moments import empty_moments as empty_moments
from neorl_core._moments import merge_moments as merge_moments
from neorl_core._moments import sample_moments as sample_moments
from neorl_core._moments import update_moments as update_moments
from neorl_core._moments import variance as variance
from neorl_core._multiple_tests import holm as holm
from neorl_core._normalised_score import normalised_score as normalised_score
from neorl_core._paired_tests import PairedTest as PairedTest
from neorl_core._paired_tests import paired_t_test as paired_t_test
from neorl_core._paired_tests import sign_flip_test as sign_flip_test
from neorl_core._paired_tests import wilcoxon_test as wilcoxon_test
from neorl_core._penalty import penalised_reward as penalised_reward
from neorl_core._permutation import shuffled_position as shuffled_position
from neorl_core._pid import PID as PID
from neorl_core._pid import PIDCarry as PIDCarry
from neorl_core._polyak import polyak as polyak
from neorl_core._proportions import clopper_pearson_interval as clopper_pearson_interval
from neorl_core._proportions import wilson_interval as wilson_interval
from neorl_core._protocols import Environment as Environment
from neorl_core._protocols import Policy as Policy
from neorl_core._quantile_functions import beta_quantile as beta_quantile
from neorl_core._quantile_functions import student_quantile as student_quantile
from neorl_core._ranks import midranks as midranks
from neorl_core._ranks import rank_correlation as rank_correlation
from neorl_core._ranks import regret_at_k as regret_at_k
from neorl_core._sampling import batch_indices as batch_indices
from neorl_core._sampling import epoch_indices as epoch_indices
from neorl_core._scaling import Affine as Affine
from neorl_core._scaling import standardiser as standardiser
from neorl_core._scaling import unit_interval as unit_interval
from neorl_core._score_aggregates import interquartile_mean as interquartile_mean
from neorl_core._score_aggregates import median_task_mean as median_task_mean
from neorl_core._score_aggregates import optimality_gap as optimality_gap
from neorl_core._score_aggregates import performance_profile as performance_profile
from neorl_core._score_aggregates import probability_of_improvement as probability_of_improvement
from neorl_core._score_aggregates import (
    stratified_bootstrap_interval as stratified_bootstrap_interval,
)
from neorl_core._simple_policies import ConstantPolicy as ConstantPolicy
from neorl_core._simple_policies import UniformPolicy as UniformPolicy
from neorl_core._td import clipped_double_td_target as clipped_double_td_target
from neorl_core._td import td_target as td_target
from neorl_core._td3_bc import td3_bc_policy_loss as td3_bc_policy_loss

__all__ = [
    "PID",
    "Affine",
    "Channel",
    "ConstantPolicy",
    "CostChannel",
    "DataStatistics",
    "Environment",
    "FieldStatistics",
    "Interval",
    "Moments",
    "PIDCarry",
    "PairedTest",
    "Policy",
    "Spec",
    "Step",
    "Trajectory",
    "Transition",
    "UniformPolicy",
    "advantage_weights",
    "as_arrays",
    "batch_indices",
    "beta_quantile",
    "bootstrap_interval",
    "bootstrap_replicates",
    "clipped_double_td_target",
    "clopper_pearson_interval",
    "crossed_interval",
    "diagonal_gaussian_log_density",
    "empty_moments",
    "epoch_indices",
    "expectile_loss",
    "highs",
    "holm",
    "interquartile_mean",
    "lows",
    "masked_mean",
    "median_task_mean",
    "merge_moments",
    "midranks",
    "normalised_score",
    "optimality_gap",
    "paired_difference_interval",
    "paired_t_test",
    "penalised_reward",
    "performance_profile",
    "polyak",
    "probability_of_improvement",
    "rank_correlation",
    "regret_at_k",
    "sample_moments",
    "scaled_advantage",
    "shuffled_position",
    "sign_flip_test",
    "spec_from_dict",
    "spec_to_dict",
    "standardiser",
    "stratified_bootstrap_interval",
    "student_interval",
    "student_quantile",
    "td3_bc_policy_loss",
    "td_target",
    "unit_interval",
    "update_moments",
    "variance",
    "wilcoxon_test",
    "wilson_interval",
]
