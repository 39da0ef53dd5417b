"""Regression targets for critics, and slowly updated target networks."""

from neorl_core.targets._double_td import double_td_target as double_td_target
from neorl_core.targets._pessimism import ensemble_discrepancy as ensemble_discrepancy
from neorl_core.targets._pessimism import mopo_penalty as mopo_penalty
from neorl_core.targets._polyak import polyak as polyak
from neorl_core.targets._regularised_td import regularised_td_target as regularised_td_target
from neorl_core.targets._soft import soft_td_target as soft_td_target
from neorl_core.targets._td import clipped_double_td_target as clipped_double_td_target
from neorl_core.targets._td import td_target as td_target

__all__ = [
    "clipped_double_td_target",
    "double_td_target",
    "ensemble_discrepancy",
    "mopo_penalty",
    "polyak",
    "regularised_td_target",
    "soft_td_target",
    "td_target",
]
