"""Controllers retuned in a learned plant, and the choice among candidates without the plant."""

from neorl_agents.retuning._choice import SURE as SURE
from neorl_agents.retuning._choice import ChoiceRule as ChoiceRule
from neorl_agents.retuning._choice import Prediction as Prediction
from neorl_agents.retuning._choice import Refusal as Refusal
from neorl_agents.retuning._choice import choose as choose
from neorl_agents.retuning._choice import half_width as half_width
from neorl_agents.retuning._choice import predictions as predictions
from neorl_agents.retuning._choice import replayed as replayed
from neorl_agents.retuning._excitation import Excitation as Excitation
from neorl_agents.retuning._excitation import excitation as excitation
from neorl_agents.retuning._held_out_mode import Mode as Mode
from neorl_agents.retuning._held_out_mode import OwnReplay as OwnReplay
from neorl_agents.retuning._held_out_mode import evaluation_replay as evaluation_replay
from neorl_agents.retuning._held_out_mode import held_out_mode as held_out_mode
from neorl_agents.retuning._held_out_mode import held_out_modes as held_out_modes
from neorl_agents.retuning._held_out_mode import logged_outcomes as logged_outcomes
from neorl_agents.retuning._held_out_mode import mode_outcome as mode_outcome
from neorl_agents.retuning._held_out_mode import own_replay as own_replay
from neorl_agents.retuning._learned_plants import HeldOutMode as HeldOutMode
from neorl_agents.retuning._learned_plants import IncumbentEpisodes as IncumbentEpisodes
from neorl_agents.retuning._learned_plants import LearnedPlants as LearnedPlants
from neorl_agents.retuning._learned_plants import ModeOutcome as ModeOutcome
from neorl_agents.retuning._learned_plants import OtherController as OtherController
from neorl_agents.retuning._learned_plants import PlantFacts as PlantFacts
from neorl_agents.retuning._learned_plants import RetuneSettings as RetuneSettings
from neorl_agents.retuning._learned_plants import judging_modes as judging_modes
from neorl_agents.retuning._learned_plants import learned_plants as learned_plants
from neorl_agents.retuning._learned_plants import model_error as model_error
from neorl_agents.retuning._learned_plants import model_settings as model_settings
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
from neorl_agents.retuning._retune import searched_changes as searched_changes
from neorl_agents.retuning._retune import select as select
from neorl_agents.retuning._search import SearchSettings as SearchSettings

__all__ = [
    "SURE",
    "TODAY",
    "Change",
    "ChoiceRule",
    "Excitation",
    "FittedResidual",
    "HeldOutMode",
    "IncumbentEpisodes",
    "LearnedPlants",
    "Mode",
    "ModeOutcome",
    "OtherController",
    "OwnReplay",
    "PlantFacts",
    "Prediction",
    "RefineResult",
    "Refusal",
    "ResidualSettings",
    "RetuneResult",
    "RetuneSettings",
    "SearchSettings",
    "choose",
    "evaluation_replay",
    "excitation",
    "fit_residual",
    "half_width",
    "held_out_mode",
    "held_out_modes",
    "judging_modes",
    "learned_plants",
    "logged_outcomes",
    "mode_outcome",
    "model_error",
    "model_settings",
    "own_replay",
    "predictions",
    "refine",
    "replayed",
    "retune",
    "searched_changes",
    "select",
    "with_authority",
]
