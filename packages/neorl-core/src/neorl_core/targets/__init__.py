"""Regression targets for critics, and slowly updated target networks."""

from neorl_core.targets._categorical import categorical_td_target as categorical_td_target
from neorl_core.targets._categorical import support_mean as support_mean
from neorl_core.targets._categorical import two_hot as two_hot
from neorl_core.targets._double_td import double_td_target as double_td_target
from neorl_core.targets._pessimism import ensemble_discrepancy as ensemble_discrepancy
from neorl_core.targets._pessimism import ensemble_lower_bound as ensemble_lower_bound
from neorl_core.targets._pessimism import mopo_penalty as mopo_penalty
from neorl_core.targets._polyak import polyak as polyak
from neorl_core.targets._quantiles import truncated_quantile_target as truncated_quantile_target
from neorl_core.targets._regularised_td import regularised_td_target as regularised_td_target
from neorl_core.targets._soft import fitted_q_target as fitted_q_target
from neorl_core.targets._soft import soft_td_target as soft_td_target
from neorl_core.targets._symlog import symexp as symexp
from neorl_core.targets._symlog import symlog as symlog
from neorl_core.targets._td import clipped_double_td_target as clipped_double_td_target
from neorl_core.targets._td import td_target as td_target

__all__ = [
    "categorical_td_target",
    "clipped_double_td_target",
    "double_td_target",
    "ensemble_discrepancy",
    "ensemble_lower_bound",
    "fitted_q_target",
    "mopo_penalty",
    "polyak",
    "regularised_td_target",
    "soft_td_target",
    "support_mean",
    "symexp",
    "symlog",
    "td_target",
    "truncated_quantile_target",
    "two_hot",
]
