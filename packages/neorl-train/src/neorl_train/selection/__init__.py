"""The choice among candidates from a log alone: estimates of every policy, and an order of them."""

from neorl_train.selection._learned_order import Task as Task
from neorl_train.selection._learned_order import estimate_columns as estimate_columns
from neorl_train.selection._learned_order import fit_order as fit_order
from neorl_train.selection._learned_order import held_out_picks as held_out_picks
from neorl_train.selection._learned_order import pick as pick
from neorl_train.selection._learned_order import regret as regret

__all__ = ["Task", "estimate_columns", "fit_order", "held_out_picks", "pick", "regret"]
