"""Losses on arrays, elementwise and not reduced unless stated otherwise."""

from neorl_core.losses._advantage_weights import advantage_weights as advantage_weights
from neorl_core.losses._advantage_weights import scaled_advantage as scaled_advantage
from neorl_core.losses._cql import cal_ql_clamp as cal_ql_clamp
from neorl_core.losses._cql import cql_regulariser as cql_regulariser
from neorl_core.losses._cross_entropy import cross_entropy_loss as cross_entropy_loss
from neorl_core.losses._dice import dual_dice_loss as dual_dice_loss
from neorl_core.losses._dice import opti_dice_loss as opti_dice_loss
from neorl_core.losses._dice import opti_dice_weights as opti_dice_weights
from neorl_core.losses._divergences import f_conjugate as f_conjugate
from neorl_core.losses._divergences import f_divergence as f_divergence
from neorl_core.losses._divergences import f_ratio as f_ratio
from neorl_core.losses._edac import edac_diversity as edac_diversity
from neorl_core.losses._expectile import expectile_loss as expectile_loss
from neorl_core.losses._gaussian_nll import gaussian_nll as gaussian_nll
from neorl_core.losses._gaussian_nll import soft_clamp as soft_clamp
from neorl_core.losses._gumbel import gumbel_loss as gumbel_loss
from neorl_core.losses._masked_mean import masked_mean as masked_mean
from neorl_core.losses._policy_losses import ppo_clipped_loss as ppo_clipped_loss
from neorl_core.losses._policy_losses import reinforce_loss as reinforce_loss
from neorl_core.losses._policy_losses import sac_policy_loss as sac_policy_loss
from neorl_core.losses._policy_losses import sac_temperature_loss as sac_temperature_loss
from neorl_core.losses._regression import huber_loss as huber_loss
from neorl_core.losses._regression import pinball_loss as pinball_loss
from neorl_core.losses._regression import quantile_huber_loss as quantile_huber_loss
from neorl_core.losses._regression import squared_loss as squared_loss
from neorl_core.losses._support_penalties import combo_regulariser as combo_regulariser
from neorl_core.losses._support_penalties import squared_mmd as squared_mmd
from neorl_core.losses._td3_bc import td3_bc_policy_loss as td3_bc_policy_loss

__all__ = [
    "advantage_weights",
    "cal_ql_clamp",
    "combo_regulariser",
    "cql_regulariser",
    "cross_entropy_loss",
    "dual_dice_loss",
    "edac_diversity",
    "expectile_loss",
    "f_conjugate",
    "f_divergence",
    "f_ratio",
    "gaussian_nll",
    "gumbel_loss",
    "huber_loss",
    "masked_mean",
    "opti_dice_loss",
    "opti_dice_weights",
    "pinball_loss",
    "ppo_clipped_loss",
    "quantile_huber_loss",
    "reinforce_loss",
    "sac_policy_loss",
    "sac_temperature_loss",
    "scaled_advantage",
    "soft_clamp",
    "squared_loss",
    "squared_mmd",
    "td3_bc_policy_loss",
]
