"""Candidates: who supplies them, under which names they are made."""

from neorl_train.candidates._enough_log import forgetful as forgetful
from neorl_train.candidates._enough_log import require_enough as require_enough
from neorl_train.candidates._enough_log import settling as settling
from neorl_train.candidates._enough_log import short_episodes as short_episodes
from neorl_train.candidates._family import Family as Family
from neorl_train.candidates._family import Made as Made
from neorl_train.candidates._family import Material as Material
from neorl_train.candidates._family import RunInputs as RunInputs
from neorl_train.candidates._imitated import best_behaviour as best_behaviour
from neorl_train.candidates._imitated import best_mean as best_mean
from neorl_train.candidates._learner import learner_of as learner_of
from neorl_train.candidates._loop_changes import loop_objections as loop_objections
from neorl_train.candidates._loop_changes import proposed_change as proposed_change
from neorl_train.candidates._loop_changes import require_declared as require_declared
from neorl_train.candidates._loop_changes import write_loop_changes as write_loop_changes
from neorl_train.candidates._retuned import faceplate_texts as faceplate_texts
from neorl_train.candidates._table import FAMILIES as FAMILIES
from neorl_train.candidates._table import check_candidate as check_candidate
from neorl_train.candidates._table import default_candidate as default_candidate
from neorl_train.candidates._table import make_candidates as make_candidates
from neorl_train.candidates._table import (
    with_candidate_and_incumbent as with_candidate_and_incumbent,
)
from neorl_train.candidates._table import with_controllers as with_controllers
from neorl_train.candidates._table import with_todays_controller as with_todays_controller
from neorl_train.judging._pool import Candidate as Candidate
from neorl_train.judging._pool import Pool as Pool

__all__ = [
    "FAMILIES",
    "Candidate",
    "Family",
    "Made",
    "Material",
    "Pool",
    "RunInputs",
    "best_behaviour",
    "best_mean",
    "check_candidate",
    "default_candidate",
    "faceplate_texts",
    "forgetful",
    "learner_of",
    "loop_objections",
    "make_candidates",
    "proposed_change",
    "require_declared",
    "require_enough",
    "settling",
    "short_episodes",
    "with_candidate_and_incumbent",
    "with_controllers",
    "with_todays_controller",
    "write_loop_changes",
]
