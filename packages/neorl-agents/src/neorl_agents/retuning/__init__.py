"""Controllers retuned in a learned plant, and the choice among candidates without the plant."""

from neorl_agents.retuning._choice import ChoiceRule as ChoiceRule
from neorl_agents.retuning._choice import Prediction as Prediction
from neorl_agents.retuning._choice import Refusal as Refusal
from neorl_agents.retuning._choice import choose as choose
from neorl_agents.retuning._choice import half_width as half_width
from neorl_agents.retuning._choice import predictions as predictions
from neorl_agents.retuning._choice import replayed as replayed
from neorl_agents.retuning._excitation import Excitation as Excitation
from neorl_agents.retuning._excitation import excitation as excitation
from neorl_agents.retuning._learned_plants import LearnedPlants as LearnedPlants
from neorl_agents.retuning._learned_plants import PlantFacts as PlantFacts
from neorl_agents.retuning._learned_plants import RetuneSettings as RetuneSettings
from neorl_agents.retuning._learned_plants import learned_plants as learned_plants
from neorl_agents.retuning._model_error import IncumbentEpisodes as IncumbentEpisodes
from neorl_agents.retuning._model_error import OtherController as OtherController
from neorl_agents.retuning._model_error import model_error as model_error
from neorl_agents.retuning._residual import FittedResidual as FittedResidual
from neorl_agents.retuning._residual import ResidualSettings as ResidualSettings
from neorl_agents.retuning._residual import fit_residual as fit_residual
from neorl_agents.retuning._residual import with_authority as with_authority
from neorl_agents.retuning._retune import TODAY as TODAY
from neorl_agents.retuning._retune import Change as Change
from neorl_agents.retuning._retune import RefineResult as RefineResult
from neorl_agents.retuning._retune import RetuneResult as RetuneResult
from neorl_agents.retuning._retune import refine as refine
from neorl_agents.retuning._retune import retune as retune
from neorl_agents.retuning._retune import select as select
from neorl_agents.retuning._search import SearchSettings as SearchSettings

__all__ = [
    "TODAY",
    "Change",
    "ChoiceRule",
    "Excitation",
    "FittedResidual",
    "IncumbentEpisodes",
    "LearnedPlants",
    "OtherController",
    "PlantFacts",
    "Prediction",
    "RefineResult",
    "Refusal",
    "ResidualSettings",
    "RetuneResult",
    "RetuneSettings",
    "SearchSettings",
    "choose",
    "excitation",
    "fit_residual",
    "half_width",
    "learned_plants",
    "model_error",
    "predictions",
    "refine",
    "replayed",
    "retune",
    "select",
    "with_authority",
]
