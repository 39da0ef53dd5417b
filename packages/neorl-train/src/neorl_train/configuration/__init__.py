"""Typed sections of a run, their file and their hash."""

from neorl_train.configuration._sections import CheckpointConfig as CheckpointConfig
from neorl_train.configuration._sections import DataConfig as DataConfig
from neorl_train.configuration._sections import EvaluationConfig as EvaluationConfig
from neorl_train.configuration._sections import OutputConfig as OutputConfig
from neorl_train.configuration._sections import TrainingConfig as TrainingConfig
from neorl_train.configuration._sections import config_hash as config_hash
from neorl_train.configuration._sections import config_to_dict as config_to_dict
from neorl_train.configuration._sections import config_type as config_type
from neorl_train.configuration._sections import validate as validate
from neorl_train.configuration._toml import load_toml as load_toml

__all__ = [
    "CheckpointConfig",
    "DataConfig",
    "EvaluationConfig",
    "OutputConfig",
    "TrainingConfig",
    "config_hash",
    "config_to_dict",
    "config_type",
    "load_toml",
    "validate",
]
