"""Pure JAX mathematics for offline reinforcement learning and process control."""

from neorl_core._advantage_weights import advantage_weights as advantage_weights
from neorl_core._advantage_weights import scaled_advantage as scaled_advantage
from neorl_core._arrays import as_arrays as as_arrays
from neorl_core._channels import Channel as Channel
from neorl_core._channels import CostChannel as CostChannel
from neorl_core._channels import Spec as Spec
from neorl_core._channels import highs as highs
from neorl_core._channels import lows as lows
from neorl_core._channels import spec_from_dict as spec_from_dict
from neorl_core._channels import spec_to_dict as spec_to_dict
from neorl_core._data_statistics import DataStatistics as DataStatistics
from neorl_core._data_statistics import FieldStatistics as FieldStatistics
from neorl_core._diagonal_gaussian import (
    diagonal_gaussian_log_density as diagonal_gaussian_log_density,
)
from neorl_core._expectile import expectile_loss as expectile_loss
from neorl_core._experience import Step as Step
from neorl_core._experience import Trajectory as Trajectory
from neorl_core._experience import Transition as Transition
from neorl_core._masked_mean import masked_mean as masked_mean
from neorl_core._penalty import penalised_reward as penalised_reward
from neorl_core._pid import PID as PID
from neorl_core._pid import PIDCarry as PIDCarry
from neorl_core._polyak import polyak as polyak
from neorl_core._protocols import Environment as Environment
from neorl_core._protocols import Policy as Policy
from neorl_core._scaling import Affine as Affine
from neorl_core._scaling import standardiser as standardiser
from neorl_core._scaling import unit_interval as unit_interval
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
    "PIDCarry",
    "Policy",
    "Spec",
    "Step",
    "Trajectory",
    "Transition",
    "UniformPolicy",
    "advantage_weights",
    "as_arrays",
    "clipped_double_td_target",
    "diagonal_gaussian_log_density",
    "expectile_loss",
    "highs",
    "lows",
    "masked_mean",
    "penalised_reward",
    "polyak",
    "scaled_advantage",
    "spec_from_dict",
    "spec_to_dict",
    "standardiser",
    "td3_bc_policy_loss",
    "td_target",
    "unit_interval",
]
