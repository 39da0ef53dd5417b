"""Chooses among candidates from a log: estimates of every policy, and a ranking."""

from neorl_train.selection._agreement import other_estimates as other_estimates
from neorl_train.selection._best_behaviour import best_behaviour as best_behaviour
from neorl_train.selection._learned_order import Task as Task
from neorl_train.selection._learned_order import estimate_columns as estimate_columns
from neorl_train.selection._learned_order import fit_order as fit_order
from neorl_train.selection._learned_order import held_out_picks as held_out_picks
from neorl_train.selection._learned_order import pick as pick
from neorl_train.selection._learned_order import regret as regret
from neorl_train.selection._page import lines as lines
from neorl_train.selection._page import page as page
from neorl_train.selection._page import selection_to_json as selection_to_json
from neorl_train.selection._page import write_selection as write_selection
from neorl_train.selection._predicted_movement import PredictedMovement as PredictedMovement
from neorl_train.selection._predicted_movement import movement_rows as movement_rows
from neorl_train.selection._predicted_movement import predicted_movement as predicted_movement
from neorl_train.selection._return_distribution import ReturnDistribution as ReturnDistribution
from neorl_train.selection._return_distribution import return_distribution as return_distribution
from neorl_train.selection._select import CandidateEstimates as CandidateEstimates
from neorl_train.selection._select import Selection as Selection
from neorl_train.selection._select import SelectOptions as SelectOptions
from neorl_train.selection._select import select_candidates as select_candidates
from neorl_train.selection._value_estimates import LoggedEpisodes as LoggedEpisodes
from neorl_train.selection._value_estimates import ValueEstimates as ValueEstimates
from neorl_train.selection._value_estimates import bootstrapped as bootstrapped
from neorl_train.selection._value_estimates import logged_episodes as logged_episodes
from neorl_train.selection._value_estimates import value_estimates as value_estimates

__all__ = [
    "CandidateEstimates",
    "LoggedEpisodes",
    "PredictedMovement",
    "ReturnDistribution",
    "SelectOptions",
    "Selection",
    "Task",
    "ValueEstimates",
    "best_behaviour",
    "bootstrapped",
    "estimate_columns",
    "fit_order",
    "held_out_picks",
    "lines",
    "logged_episodes",
    "movement_rows",
    "other_estimates",
    "page",
    "pick",
    "predicted_movement",
    "regret",
    "return_distribution",
    "select_candidates",
    "selection_to_json",
    "value_estimates",
    "write_selection",
]
