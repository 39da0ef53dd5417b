"""Pure JAX mathematics for offline reinforcement learning and process control."""

from neorl_core._advantage_weights import advantage_weights as advantage_weights
from neorl_core._advantage_weights import scaled_advantage as scaled_advantage
from neorl_core._arrays import as_arrays as as_arrays
from neorl_core._bootstrap import bootstrap_interval as bootstrap_interval
from neorl_core._bootstrap import bootstrap_replicates as bootstrap_replicates
from neorl_core._categorical import categorical_entropy as categorical_entropy
from neorl_core._categorical import categorical_kl as categorical_kl
from neorl_core._categorical import categorical_log_probability as categorical_log_probability
from neorl_core._categorical import categorical_mode as categorical_mode
from neorl_core._categorical import categorical_sample as categorical_sample
from neorl_core._channels import Channel as Channel
from neorl_core._channels import CostChannel as CostChannel
from neorl_core._channels import Spec as Spec
from neorl_core._channels import highs as highs
from neorl_core._channels import lows as lows
from neorl_core._channels import spec_from_dict as spec_from_dict
from neorl_core._channels import spec_to_dict as spec_to_dict
from neorl_core._client_updates import Aggregate as Aggregate
from neorl_core._concentration import empirical_bernstein_interval as empirical_bernstein_interval
from neorl_core._concentration import hcope_lower_bound as hcope_lower_bound
from neorl_core._concentration import hcope_threshold as hcope_threshold
from neorl_core._concentration import hoeffding_interval as hoeffding_interval
from neorl_core._conformal import conformal_quantile as conformal_quantile
from neorl_core._conformal import weighted_conformal_quantile as weighted_conformal_quantile
from neorl_core._coordinate_rules import coordinate_median as coordinate_median
from neorl_core._coordinate_rules import trimmed_mean as trimmed_mean
from neorl_core._coordinate_rules import weighted_mean as weighted_mean
from neorl_core._cql import cal_ql_clamp as cal_ql_clamp
from neorl_core._cql import cql_regulariser as cql_regulariser
from neorl_core._crossed_interval import crossed_interval as crossed_interval
from neorl_core._data_statistics import DataStatistics as DataStatistics
from neorl_core._data_statistics import FieldStatistics as FieldStatistics
from neorl_core._diagonal_gaussian import diagonal_gaussian_entropy as diagonal_gaussian_entropy
from neorl_core._diagonal_gaussian import diagonal_gaussian_kl as diagonal_gaussian_kl
from neorl_core._diagonal_gaussian import (
    diagonal_gaussian_log_density as diagonal_gaussian_log_density,
)
from neorl_core._diagonal_gaussian import diagonal_gaussian_mode as diagonal_gaussian_mode
from neorl_core._diagonal_gaussian import diagonal_gaussian_sample as diagonal_gaussian_sample
from neorl_core._discounted import discounted_returns as discounted_returns
from neorl_core._discounted import segment_discounted_returns as segment_discounted_returns
from neorl_core._double_td import double_td_target as double_td_target
from neorl_core._doubly_robust import doubly_robust_return as doubly_robust_return
from neorl_core._doubly_robust import weighted_doubly_robust as weighted_doubly_robust
from neorl_core._edac import edac_diversity as edac_diversity
from neorl_core._episode_rows import episode_first_rows as episode_first_rows
from neorl_core._episode_rows import window_rows as window_rows
from neorl_core._expectile import expectile_loss as expectile_loss
from neorl_core._experience import Step as Step
from neorl_core._experience import Trajectory as Trajectory
from neorl_core._experience import Transition as Transition
from neorl_core._feedback_policies import BaseStock as BaseStock
from neorl_core._feedback_policies import StateFeedback as StateFeedback
from neorl_core._gaussian_nll import gaussian_nll as gaussian_nll
from neorl_core._gaussian_nll import soft_clamp as soft_clamp
from neorl_core._gossip import averaging_rounds as averaging_rounds
from neorl_core._gossip import gossip_step as gossip_step
from neorl_core._gossip import hierarchical_mixing as hierarchical_mixing
from neorl_core._gossip import metropolis_mixing as metropolis_mixing
from neorl_core._gossip import mixing_rate as mixing_rate
from neorl_core._gossip import ring_mixing as ring_mixing
from neorl_core._gossip import star_mixing as star_mixing
from neorl_core._graphs import PaddedGraph as PaddedGraph
from neorl_core._graphs import pad_graph as pad_graph
from neorl_core._graphs import smallest_bucket as smallest_bucket
from neorl_core._gumbel import gumbel_loss as gumbel_loss
from neorl_core._history import DelayLine as DelayLine
from neorl_core._history import HistoryWindow as HistoryWindow
from neorl_core._history import delay_line as delay_line
from neorl_core._history import delay_step as delay_step
from neorl_core._history import history_step as history_step
from neorl_core._history import history_window as history_window
from neorl_core._identification import LinearModel as LinearModel
from neorl_core._identification import delay_residuals as delay_residuals
from neorl_core._identification import identify_linear as identify_linear
from neorl_core._importance_sampling import LoggedTrajectories as LoggedTrajectories
from neorl_core._importance_sampling import effective_sample_size as effective_sample_size
from neorl_core._importance_sampling import pdis_return as pdis_return
from neorl_core._importance_sampling import tis_return as tis_return
from neorl_core._importance_sampling import wis as wis
from neorl_core._importance_sampling import wpdis as wpdis
from neorl_core._intervals import Interval as Interval
from neorl_core._intervals import paired_difference_interval as paired_difference_interval
from neorl_core._intervals import student_interval as student_interval
from neorl_core._krum import bulyan as bulyan
from neorl_core._krum import krum as krum
from neorl_core._krum import multi_krum as multi_krum
from neorl_core._lambda_returns import generalised_advantages as generalised_advantages
from neorl_core._lambda_returns import (
    segment_generalised_advantages as segment_generalised_advantages,
)
from neorl_core._lambda_returns import segment_td_lambda_returns as segment_td_lambda_returns
from neorl_core._lambda_returns import td_lambda_returns as td_lambda_returns
from neorl_core._limits import limit_rate as limit_rate
from neorl_core._limits import project_box as project_box
from neorl_core._magic import Magic as Magic
from neorl_core._magic import magic as magic
from neorl_core._marginalised import marginalised_doubly_robust as marginalised_doubly_robust
from neorl_core._marginalised import marginalised_return as marginalised_return
from neorl_core._masked_mean import masked_mean as masked_mean
from neorl_core._message_passing import edge_softmax as edge_softmax
from neorl_core._message_passing import graph_convolution as graph_convolution
from neorl_core._message_passing import in_degrees as in_degrees
from neorl_core._message_passing import pool_edges as pool_edges
from neorl_core._message_passing import pool_nodes as pool_nodes
from neorl_core._moments import Moments as Moments
from neorl_core._moments import empty_moments as empty_moments
from neorl_core._moments import merge_moments as merge_moments
from neorl_core._moments import sample_moments as sample_moments
from neorl_core._moments import update_moments as update_moments
from neorl_core._moments import variance as variance
from neorl_core._multiple_tests import holm as holm
from neorl_core._n_step import n_step_returns as n_step_returns
from neorl_core._n_step import segment_n_step_returns as segment_n_step_returns
from neorl_core._normalised_score import normalised_score as normalised_score
from neorl_core._paired_tests import PairedTest as PairedTest
from neorl_core._paired_tests import paired_t_test as paired_t_test
from neorl_core._paired_tests import sign_flip_test as sign_flip_test
from neorl_core._paired_tests import wilcoxon_test as wilcoxon_test
from neorl_core._penalty import penalised_reward as penalised_reward
from neorl_core._permutation import shuffled_position as shuffled_position
from neorl_core._pid import PID as PID
from neorl_core._pid import PIDCarry as PIDCarry
from neorl_core._pid_multiplier import MultiplierState as MultiplierState
from neorl_core._pid_multiplier import pid_multiplier_init as pid_multiplier_init
from neorl_core._pid_multiplier import pid_multiplier_step as pid_multiplier_step
from neorl_core._policy_losses import ppo_clipped_loss as ppo_clipped_loss
from neorl_core._policy_losses import reinforce_loss as reinforce_loss
from neorl_core._policy_losses import sac_temperature_loss as sac_temperature_loss
from neorl_core._polyak import polyak as polyak
from neorl_core._priority_tree import PrioritySample as PrioritySample
from neorl_core._priority_tree import PriorityTree as PriorityTree
from neorl_core._priority_tree import priority_tree as priority_tree
from neorl_core._priority_tree import priority_weights as priority_weights
from neorl_core._priority_tree import sample_priorities as sample_priorities
from neorl_core._priority_tree import set_priorities as set_priorities
from neorl_core._private_mean import clip_update as clip_update
from neorl_core._private_mean import private_mean as private_mean
from neorl_core._proportions import clopper_pearson_interval as clopper_pearson_interval
from neorl_core._proportions import wilson_interval as wilson_interval
from neorl_core._protocols import Environment as Environment
from neorl_core._protocols import Policy as Policy
from neorl_core._quantile_functions import beta_quantile as beta_quantile
from neorl_core._quantile_functions import student_quantile as student_quantile
from neorl_core._ranks import midranks as midranks
from neorl_core._ranks import rank_correlation as rank_correlation
from neorl_core._ranks import regret_at_k as regret_at_k
from neorl_core._regression import huber_loss as huber_loss
from neorl_core._regression import pinball_loss as pinball_loss
from neorl_core._regression import quantile_huber_loss as quantile_huber_loss
from neorl_core._regression import squared_loss as squared_loss
from neorl_core._regularised_td import regularised_td_target as regularised_td_target
from neorl_core._riccati import KalmanFilter as KalmanFilter
from neorl_core._riccati import Regulator as Regulator
from neorl_core._riccati import discrete_riccati as discrete_riccati
from neorl_core._riccati import finite_horizon_regulator as finite_horizon_regulator
from neorl_core._riccati import kalman_filter as kalman_filter
from neorl_core._riccati import lq_regulator as lq_regulator
from neorl_core._ring_buffer import RingBuffer as RingBuffer
from neorl_core._ring_buffer import ring_buffer as ring_buffer
from neorl_core._ring_buffer import ring_order as ring_order
from neorl_core._ring_buffer import ring_push as ring_push
from neorl_core._ring_buffer import ring_sample as ring_sample
from neorl_core._robust_centres import centred_clipping as centred_clipping
from neorl_core._robust_centres import geometric_median as geometric_median
from neorl_core._safety_targets import discounted_cost_limit as discounted_cost_limit
from neorl_core._safety_targets import discounted_cost_target as discounted_cost_target
from neorl_core._safety_targets import reachability_target as reachability_target
from neorl_core._safety_targets import step_cost_limit as step_cost_limit
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
from neorl_core._simplex import project_simplex as project_simplex
from neorl_core._simplex import simplex_quadratic as simplex_quadratic
from neorl_core._stability import controllability_matrix as controllability_matrix
from neorl_core._stability import controllable as controllable
from neorl_core._stability import discrete_lyapunov as discrete_lyapunov
from neorl_core._stability import observable as observable
from neorl_core._stability import spectral_radius as spectral_radius
from neorl_core._tail_risk import conditional_value_at_risk as conditional_value_at_risk
from neorl_core._tail_risk import weighted_quantile as weighted_quantile
from neorl_core._tanh_gaussian import tanh_gaussian_entropy as tanh_gaussian_entropy
from neorl_core._tanh_gaussian import tanh_gaussian_kl as tanh_gaussian_kl
from neorl_core._tanh_gaussian import (
    tanh_gaussian_latent_log_density as tanh_gaussian_latent_log_density,
)
from neorl_core._tanh_gaussian import tanh_gaussian_log_density as tanh_gaussian_log_density
from neorl_core._tanh_gaussian import tanh_gaussian_mode as tanh_gaussian_mode
from neorl_core._tanh_gaussian import tanh_gaussian_sample as tanh_gaussian_sample
from neorl_core._td import clipped_double_td_target as clipped_double_td_target
from neorl_core._td import td_target as td_target
from neorl_core._td3_bc import td3_bc_policy_loss as td3_bc_policy_loss
from neorl_core._zero_order_hold import zero_order_hold as zero_order_hold

__all__ = [
    "PID",
    "Affine",
    "Aggregate",
    "BaseStock",
    "Channel",
    "ConstantPolicy",
    "CostChannel",
    "DataStatistics",
    "DelayLine",
    "Environment",
    "FieldStatistics",
    "HistoryWindow",
    "Interval",
    "KalmanFilter",
    "LinearModel",
    "LoggedTrajectories",
    "Magic",
    "Moments",
    "MultiplierState",
    "PIDCarry",
    "PaddedGraph",
    "PairedTest",
    "Policy",
    "PrioritySample",
    "PriorityTree",
    "Regulator",
    "RingBuffer",
    "Spec",
    "StateFeedback",
    "Step",
    "Trajectory",
    "Transition",
    "UniformPolicy",
    "advantage_weights",
    "as_arrays",
    "averaging_rounds",
    "batch_indices",
    "beta_quantile",
    "bootstrap_interval",
    "bootstrap_replicates",
    "bulyan",
    "cal_ql_clamp",
    "categorical_entropy",
    "categorical_kl",
    "categorical_log_probability",
    "categorical_mode",
    "categorical_sample",
    "centred_clipping",
    "clip_update",
    "clipped_double_td_target",
    "clopper_pearson_interval",
    "conditional_value_at_risk",
    "conformal_quantile",
    "controllability_matrix",
    "controllable",
    "coordinate_median",
    "cql_regulariser",
    "crossed_interval",
    "delay_line",
    "delay_residuals",
    "delay_step",
    "diagonal_gaussian_entropy",
    "diagonal_gaussian_kl",
    "diagonal_gaussian_log_density",
    "diagonal_gaussian_mode",
    "diagonal_gaussian_sample",
    "discounted_cost_limit",
    "discounted_cost_target",
    "discounted_returns",
    "discrete_lyapunov",
    "discrete_riccati",
    "double_td_target",
    "doubly_robust_return",
    "edac_diversity",
    "edge_softmax",
    "effective_sample_size",
    "empirical_bernstein_interval",
    "empty_moments",
    "episode_first_rows",
    "epoch_indices",
    "expectile_loss",
    "finite_horizon_regulator",
    "gaussian_nll",
    "generalised_advantages",
    "geometric_median",
    "gossip_step",
    "graph_convolution",
    "gumbel_loss",
    "hcope_lower_bound",
    "hcope_threshold",
    "hierarchical_mixing",
    "highs",
    "history_step",
    "history_window",
    "hoeffding_interval",
    "holm",
    "huber_loss",
    "identify_linear",
    "in_degrees",
    "interquartile_mean",
    "kalman_filter",
    "krum",
    "limit_rate",
    "lows",
    "lq_regulator",
    "magic",
    "marginalised_doubly_robust",
    "marginalised_return",
    "masked_mean",
    "median_task_mean",
    "merge_moments",
    "metropolis_mixing",
    "midranks",
    "mixing_rate",
    "multi_krum",
    "n_step_returns",
    "normalised_score",
    "observable",
    "optimality_gap",
    "pad_graph",
    "paired_difference_interval",
    "paired_t_test",
    "pdis_return",
    "penalised_reward",
    "performance_profile",
    "pid_multiplier_init",
    "pid_multiplier_step",
    "pinball_loss",
    "polyak",
    "pool_edges",
    "pool_nodes",
    "ppo_clipped_loss",
    "priority_tree",
    "priority_weights",
    "private_mean",
    "probability_of_improvement",
    "project_box",
    "project_simplex",
    "quantile_huber_loss",
    "rank_correlation",
    "reachability_target",
    "regret_at_k",
    "regularised_td_target",
    "reinforce_loss",
    "ring_buffer",
    "ring_mixing",
    "ring_order",
    "ring_push",
    "ring_sample",
    "sac_temperature_loss",
    "sample_moments",
    "sample_priorities",
    "scaled_advantage",
    "segment_discounted_returns",
    "segment_generalised_advantages",
    "segment_n_step_returns",
    "segment_td_lambda_returns",
    "set_priorities",
    "shuffled_position",
    "sign_flip_test",
    "simplex_quadratic",
    "smallest_bucket",
    "soft_clamp",
    "spec_from_dict",
    "spec_to_dict",
    "spectral_radius",
    "squared_loss",
    "standardiser",
    "star_mixing",
    "step_cost_limit",
    "stratified_bootstrap_interval",
    "student_interval",
    "student_quantile",
    "tanh_gaussian_entropy",
    "tanh_gaussian_kl",
    "tanh_gaussian_latent_log_density",
    "tanh_gaussian_log_density",
    "tanh_gaussian_mode",
    "tanh_gaussian_sample",
    "td3_bc_policy_loss",
    "td_lambda_returns",
    "td_target",
    "tis_return",
    "trimmed_mean",
    "unit_interval",
    "update_moments",
    "variance",
    "weighted_conformal_quantile",
    "weighted_doubly_robust",
    "weighted_mean",
    "weighted_quantile",
    "wilcoxon_test",
    "wilson_interval",
    "window_rows",
    "wis",
    "wpdis",
    "zero_order_hold",
]
