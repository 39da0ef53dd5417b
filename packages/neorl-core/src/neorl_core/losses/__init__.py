"""Losses on arrays, elementwise and not reduced unless stated otherwise."""

from neorl_core._internal.missing_names import missing_name
from neorl_core.losses._conservative import cal_ql_clamp as cal_ql_clamp
from neorl_core.losses._conservative import combo_regulariser as combo_regulariser
from neorl_core.losses._conservative import cql_regulariser as cql_regulariser
from neorl_core.losses._conservative import edac_diversity as edac_diversity
from neorl_core.losses._policy_losses import advantage_weights as advantage_weights
from neorl_core.losses._policy_losses import ppo_clipped_loss as ppo_clipped_loss
from neorl_core.losses._policy_losses import sac_policy_loss as sac_policy_loss
from neorl_core.losses._policy_losses import scaled_advantage as scaled_advantage
from neorl_core.losses._policy_losses import td3_bc_policy_loss as td3_bc_policy_loss
from neorl_core.losses._regression import expectile_loss as expectile_loss
from neorl_core.losses._regression import gaussian_nll as gaussian_nll
from neorl_core.losses._regression import gumbel_loss as gumbel_loss
from neorl_core.losses._regression import huber_loss as huber_loss
from neorl_core.losses._regression import masked_mean as masked_mean
from neorl_core.losses._regression import quantile_huber_loss as quantile_huber_loss
from neorl_core.losses._regression import soft_clamp as soft_clamp
from neorl_core.losses._regression import squared_loss as squared_loss

__all__ = [
    "advantage_weights",
    "cal_ql_clamp",
    "combo_regulariser",
    "cql_regulariser",
    "edac_diversity",
    "expectile_loss",
    "gaussian_nll",
    "gumbel_loss",
    "huber_loss",
    "masked_mean",
    "ppo_clipped_loss",
    "quantile_huber_loss",
    "sac_policy_loss",
    "scaled_advantage",
    "soft_clamp",
    "squared_loss",
    "td3_bc_policy_loss",
]
globals()["__getattr__"] = missing_name(__name__, __all__)
