"""From a historian's export to a dataset, as ``plant.toml`` describes it (extra ``etl``)."""

from neorl_envs.plant_logs._configuration import PlantLog as PlantLog
from neorl_envs.plant_logs._configuration import Tag as Tag
from neorl_envs.plant_logs._configuration_file import read_plant_log as read_plant_log
from neorl_envs.plant_logs._convert import convert_file as convert_file
from neorl_envs.plant_logs._convert import convert_log as convert_log
from neorl_envs.plant_logs._draft import draft_plant_log as draft_plant_log

__all__ = ["PlantLog", "Tag", "convert_file", "convert_log", "draft_plant_log", "read_plant_log"]
