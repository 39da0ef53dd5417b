"""Controllers retuned in a learned plant, and the choice among candidates without the plant."""

from neorl_agents.retuning._choice import ChoiceRule as ChoiceRule
from neorl_agents.retuning._choice import Prediction as Prediction
from neorl_agents.retuning._choice import choose as choose
from neorl_agents.retuning._choice import predictions as predictions
from neorl_agents.retuning._retune import TODAY as TODAY
from neorl_agents.retuning._retune import Change as Change
from neorl_agents.retuning._retune import LearnedPlants as LearnedPlants
from neorl_agents.retuning._retune import PlantFacts as PlantFacts
from neorl_agents.retuning._retune import Retuned as Retuned
from neorl_agents.retuning._retune import RetuneSettings as RetuneSettings
from neorl_agents.retuning._retune import learned_plants as learned_plants
from neorl_agents.retuning._retune import retune as retune
from neorl_agents.retuning._retune import select as select
from neorl_agents.retuning._search import SearchSettings as SearchSettings

__all__ = [
    "TODAY",
    "Change",
    "ChoiceRule",
    "LearnedPlants",
    "PlantFacts",
    "Prediction",
    "RetuneSettings",
    "Retuned",
    "SearchSettings",
    "choose",
    "learned_plants",
    "predictions",
    "retune",
    "select",
]
