"""Conversion of a historian's export to a dataset, guided by ``plant.toml`` (extra ``etl``)."""

from neorl_envs.plant_logs._configuration import PlantLog as PlantLog
from neorl_envs.plant_logs._configuration import Tag as Tag
from neorl_envs.plant_logs._configuration_file import plant_log_from_dict as plant_log_from_dict
from neorl_envs.plant_logs._configuration_file import read_plant_log as read_plant_log
from neorl_envs.plant_logs._convert import convert_file as convert_file
from neorl_envs.plant_logs._convert import convert_log as convert_log
from neorl_envs.plant_logs._declared_plant import DeclaredObjective as DeclaredObjective
from neorl_envs.plant_logs._declared_plant import DeclaredPlant as DeclaredPlant
from neorl_envs.plant_logs._declared_plant import declared_plant as declared_plant
from neorl_envs.plant_logs._draft import draft_plant_log as draft_plant_log
from neorl_envs.plant_logs._expressions import Expression as Expression
from neorl_envs.plant_logs._interlocks import DeclaredInterlocks as DeclaredInterlocks
from neorl_envs.plant_logs._loop_log import LoopColumn as LoopColumn
from neorl_envs.plant_logs._loop_log import LoopColumns as LoopColumns
from neorl_envs.plant_logs._loop_log import LoopLog as LoopLog
from neorl_envs.plant_logs._loop_log import loop_columns as loop_columns
from neorl_envs.plant_logs._loop_log import read_loop_log as read_loop_log

__all__ = [
    "DeclaredInterlocks",
    "DeclaredObjective",
    "DeclaredPlant",
    "Expression",
    "LoopColumn",
    "LoopColumns",
    "LoopLog",
    "PlantLog",
    "Tag",
    "convert_file",
    "convert_log",
    "declared_plant",
    "draft_plant_log",
    "loop_columns",
    "plant_log_from_dict",
    "read_loop_log",
    "read_plant_log",
]
