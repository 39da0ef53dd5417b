"""The choice of a candidate without the plant: plant models, estimates from the log, risk."""

from typing import TYPE_CHECKING

from neorl_core.infrastructure import lazy_names

if TYPE_CHECKING:
    from neorl_train.choosing._agreement import other_estimates as other_estimates
    from neorl_train.choosing._agreement import refuse_if_contradicted as refuse_if_contradicted
    from neorl_train.choosing._choice_page import lines as lines
    from neorl_train.choosing._choice_page import page as page
    from neorl_train.choosing._choice_page import write_choice as write_choice
    from neorl_train.choosing._choose import ChosenCandidate as ChosenCandidate
    from neorl_train.choosing._choose import choose_candidate as choose_candidate
    from neorl_train.choosing._model_check import PlantModelCheck as PlantModelCheck
    from neorl_train.choosing._model_check import check_plant_model as check_plant_model
    from neorl_train.choosing._model_page import mark as mark
    from neorl_train.choosing._options import ChooseOptions as ChooseOptions
    from neorl_train.choosing._options import learn_plants as learn_plants
    from neorl_train.choosing._predicted_movement import PredictedMovement as PredictedMovement
    from neorl_train.choosing._predicted_movement import movement_rows as movement_rows
    from neorl_train.choosing._predicted_movement import predicted_movement as predicted_movement
    from neorl_train.choosing._return_distribution import MOST_FAR as MOST_FAR
    from neorl_train.choosing._return_distribution import ReturnDistribution as ReturnDistribution
    from neorl_train.choosing._return_distribution import return_distribution as return_distribution
    from neorl_train.choosing._risk import LimitRisk as LimitRisk
    from neorl_train.choosing._risk import Risk as Risk
    from neorl_train.choosing._risk import risk_estimates as risk_estimates
    from neorl_train.choosing._select import CandidateEstimates as CandidateEstimates
    from neorl_train.choosing._select import Selection as Selection
    from neorl_train.choosing._select import select_candidates as select_candidates
    from neorl_train.choosing._value_estimates import LoggedEpisodes as LoggedEpisodes
    from neorl_train.choosing._value_estimates import ValueEstimates as ValueEstimates
    from neorl_train.choosing._value_estimates import bootstrap as bootstrap
    from neorl_train.choosing._value_estimates import logged_episodes as logged_episodes
    from neorl_train.choosing._value_estimates import value_estimates as value_estimates

__all__ = [
    "MOST_FAR",
    "CandidateEstimates",
    "ChooseOptions",
    "ChosenCandidate",
    "LimitRisk",
    "LoggedEpisodes",
    "PlantModelCheck",
    "PredictedMovement",
    "ReturnDistribution",
    "Risk",
    "Selection",
    "ValueEstimates",
    "bootstrap",
    "check_plant_model",
    "choose_candidate",
    "learn_plants",
    "lines",
    "logged_episodes",
    "mark",
    "movement_rows",
    "other_estimates",
    "page",
    "predicted_movement",
    "refuse_if_contradicted",
    "return_distribution",
    "risk_estimates",
    "select_candidates",
    "value_estimates",
    "write_choice",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__)
