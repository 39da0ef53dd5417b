"""Controllers fitted on a log: PID loops, Smith predictors, LQG, MPC, base stock; declared PID."""

from neorl_agents.classical._base_stock import BaseStockLevels as BaseStockLevels
from neorl_agents.classical._base_stock import Item as Item
from neorl_agents.classical._declared import DeclaredLoop as DeclaredLoop
from neorl_agents.classical._declared import declared_bank as declared_bank
from neorl_agents.classical._first_order import FirstOrderModel as FirstOrderModel
from neorl_agents.classical._first_order import identify_first_order as identify_first_order
from neorl_agents.classical._identification import identify_plant as identify_plant
from neorl_agents.classical._model_controllers import LQG as LQG
from neorl_agents.classical._model_controllers import MPC as MPC
from neorl_agents.classical._pid_controllers import ImitatedPID as ImitatedPID
from neorl_agents.classical._pid_controllers import SmithPID as SmithPID
from neorl_agents.classical._pid_controllers import TunedPID as TunedPID
from neorl_agents.classical._table import CLASSICAL as CLASSICAL
from neorl_agents.classical._task import ClassicalController as ClassicalController
from neorl_agents.classical._task import FittedController as FittedController
from neorl_agents.classical._task import Loop as Loop
from neorl_agents.classical._task import Task as Task
from neorl_agents.classical._task import checked_log as checked_log
from neorl_agents.classical._tuning import lambda_tuning as lambda_tuning
from neorl_agents.classical._tuning import simc as simc
from neorl_agents.classical._tuning import simc_rule as simc_rule

__all__ = [
    "CLASSICAL",
    "LQG",
    "MPC",
    "BaseStockLevels",
    "ClassicalController",
    "DeclaredLoop",
    "FirstOrderModel",
    "FittedController",
    "ImitatedPID",
    "Item",
    "Loop",
    "SmithPID",
    "Task",
    "TunedPID",
    "checked_log",
    "declared_bank",
    "identify_first_order",
    "identify_plant",
    "lambda_tuning",
    "simc",
    "simc_rule",
]
