"""Typed sections of a run's configuration, their defaults, their file and their hash."""

from neorl_train.configuration._classical import ClassicalConfig as ClassicalConfig
from neorl_train.configuration._classical import RetuningConfig as RetuningConfig
from neorl_train.configuration._classical import check_classical as check_classical
from neorl_train.configuration._classical import check_retuning as check_retuning
from neorl_train.configuration._classical import task_of as task_of
from neorl_train.configuration._guard import FallbackConfig as FallbackConfig
from neorl_train.configuration._guard import LimitsConfig as LimitsConfig
from neorl_train.configuration._guard import limited_spec as limited_spec
from neorl_train.configuration._monitors import MonitorsConfig as MonitorsConfig
from neorl_train.configuration._monitors import SupervisorConfig as SupervisorConfig
from neorl_train.configuration._online import FineTuningConfig as FineTuningConfig
from neorl_train.configuration._online import OnlineConfig as OnlineConfig
from neorl_train.configuration._sections import DEMO_HYPERPARAMETERS as DEMO_HYPERPARAMETERS
from neorl_train.configuration._sections import CheckpointConfig as CheckpointConfig
from neorl_train.configuration._sections import DataConfig as DataConfig
from neorl_train.configuration._sections import DevicesConfig as DevicesConfig
from neorl_train.configuration._sections import EvaluationConfig as EvaluationConfig
from neorl_train.configuration._sections import OutputConfig as OutputConfig
from neorl_train.configuration._sections import TrainingConfig as TrainingConfig
from neorl_train.configuration._sections import config_hash as config_hash
from neorl_train.configuration._sections import config_to_dict as config_to_dict
from neorl_train.configuration._sections import config_type as config_type
from neorl_train.configuration._sections import dump_toml as dump_toml
from neorl_train.configuration._sections import load_toml as load_toml
from neorl_train.configuration._sections import memory_bytes as memory_bytes
from neorl_train.configuration._sections import memory_limit as memory_limit
from neorl_train.configuration._sections import stays_on_disk as stays_on_disk
from neorl_train.configuration._validation import size_notes as size_notes
from neorl_train.configuration._validation import untrained_notes as untrained_notes
from neorl_train.configuration._validation import validate as validate

__all__ = [
    "DEMO_HYPERPARAMETERS",
    "CheckpointConfig",
    "DataConfig",
    "DevicesConfig",
    "EvaluationConfig",
    "FallbackConfig",
    "FineTuningConfig",
    "LimitsConfig",
    "MonitorsConfig",
    "OnlineConfig",
    "OutputConfig",
    "RetuningConfig",
    "SupervisorConfig",
    "TrainingConfig",
    "check_classical",
    "check_retuning",
    "config_hash",
    "config_to_dict",
    "config_type",
    "dump_toml",
    "limited_spec",
    "load_toml",
    "memory_bytes",
    "memory_limit",
    "size_notes",
    "stays_on_disk",
    "task_of",
    "untrained_notes",
    "validate",
]
