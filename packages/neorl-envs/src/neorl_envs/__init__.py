"""Industrial simulators in pure JAX, recorded datasets and plant logs."""

from neorl_envs._autoreset import AutoReset as AutoReset
from neorl_envs._autoreset import AutoResetState as AutoResetState
from neorl_envs._autoreset import autoreset as autoreset
from neorl_envs._autoreset import fresh_carry as fresh_carry
from neorl_envs._behaviour import BehaviourCarry as BehaviourCarry
from neorl_envs._behaviour import BehaviourPolicy as BehaviourPolicy
from neorl_envs._behaviour import behaviour_policies as behaviour_policies
from neorl_envs._collect import collect_log as collect_log
from neorl_envs._dataset import Dataset as Dataset
from neorl_envs._dataset import dataset_from_columns as dataset_from_columns
from neorl_envs._dataset_checks import DatasetError as DatasetError
from neorl_envs._dataset_file import write_dataset as write_dataset
from neorl_envs._gymnax import gymnax as gymnax
from neorl_envs._operators import OperatorPlan as OperatorPlan
from neorl_envs._read import read_dataset as read_dataset
from neorl_envs._registration import register_environments
from neorl_envs._registry import environment_names as environment_names
from neorl_envs._registry import make as make
from neorl_envs._report import dataset_report as dataset_report
from neorl_envs._report_text import report_text as report_text
from neorl_envs._split import split_episodes as split_episodes
from neorl_envs._statistics import data_statistics as data_statistics
from neorl_envs.chemical_reactor import ChemicalReactor as ChemicalReactor

__all__ = [
    "AutoReset",
    "AutoResetState",
    "BehaviourCarry",
    "BehaviourPolicy",
    "ChemicalReactor",
    "Dataset",
    "DatasetError",
    "OperatorPlan",
    "autoreset",
    "behaviour_policies",
    "collect_log",
    "data_statistics",
    "dataset_from_columns",
    "dataset_report",
    "environment_names",
    "fresh_carry",
    "gymnax",
    "make",
    "read_dataset",
    "report_text",
    "split_episodes",
    "write_dataset",
]

register_environments()
