"""The simulated plants, a folder or file each, the protocol of a plant, and the table of names."""

from neorl_envs.plants._protocol import Plant as Plant
from neorl_envs.plants._protocol import PlantDefaults as PlantDefaults
from neorl_envs.plants._protocol import check_plant as check_plant
from neorl_envs.plants._simulated import Derived as Derived
from neorl_envs.plants._simulated import Moment as Moment
from neorl_envs.plants._simulated import SimulatedPlant as SimulatedPlant
from neorl_envs.plants._table import GRAPH_PLANTS as GRAPH_PLANTS
from neorl_envs.plants._table import PLANTS as PLANTS
from neorl_envs.plants._table import is_plant as is_plant
from neorl_envs.plants._table import is_unit as is_unit
from neorl_envs.plants._table import plant_origin as plant_origin
from neorl_envs.plants._table import register_plant as register_plant
from neorl_envs.plants.chemical_reactor._env import ChemicalReactor as ChemicalReactor
from neorl_envs.plants.cstr import CSTR as CSTR
from neorl_envs.plants.dmsd import DMSD as DMSD
from neorl_envs.plants.hvac_control._env import HVACControl as HVACControl
from neorl_envs.plants.industrial_benchmark import (
    IndustrialBenchmark as IndustrialBenchmark,
)
from neorl_envs.plants.pipeline import Pipeline as Pipeline
from neorl_envs.plants.power_grid._env import PowerGrid as PowerGrid
from neorl_envs.plants.robot_assembly._env import RobotAssembly as RobotAssembly
from neorl_envs.plants.steel_annealing._env import SteelAnnealing as SteelAnnealing
from neorl_envs.plants.supply_chain._env import SupplyChain as SupplyChain
from neorl_envs.plants.water_treatment._env import WaterTreatment as WaterTreatment

__all__ = [
    "CSTR",
    "DMSD",
    "GRAPH_PLANTS",
    "PLANTS",
    "ChemicalReactor",
    "Derived",
    "HVACControl",
    "IndustrialBenchmark",
    "Moment",
    "Pipeline",
    "Plant",
    "PlantDefaults",
    "PowerGrid",
    "RobotAssembly",
    "SimulatedPlant",
    "SteelAnnealing",
    "SupplyChain",
    "WaterTreatment",
    "check_plant",
    "is_plant",
    "is_unit",
    "plant_origin",
    "register_plant",
]
