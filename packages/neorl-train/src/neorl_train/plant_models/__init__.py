"""Learns a plant model from a log and checks it on held-out episodes; the result is one page."""

from neorl_train.plant_models._check import ModelOptions as ModelOptions
from neorl_train.plant_models._check import PlantModelCheck as PlantModelCheck
from neorl_train.plant_models._check import check_plant_model as check_plant_model
from neorl_train.plant_models._page import mark as mark
from neorl_train.plant_models._page import write_model_page as write_model_page

__all__ = ["ModelOptions", "PlantModelCheck", "check_plant_model", "mark", "write_model_page"]
