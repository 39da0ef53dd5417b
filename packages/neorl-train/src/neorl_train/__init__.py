"""Compiled training, evaluation, verdicts, checkpoints and tracking."""

from neorl_train._arguments import read_config as read_config
from neorl_train._checkpoint import Checkpoints as Checkpoints
from neorl_train._checkpoint import Restored as Restored
from neorl_train._checkpoint import complete_steps as complete_steps
from neorl_train._config import CheckpointConfig as CheckpointConfig
from neorl_train._config import Config as Config
from neorl_train._config import DataConfig as DataConfig
from neorl_train._config import EvaluationConfig as EvaluationConfig
from neorl_train._config import OutputConfig as OutputConfig
from neorl_train._config import TrainingConfig as TrainingConfig
from neorl_train._config import config_hash as config_hash
from neorl_train._config import config_to_dict as config_to_dict
from neorl_train._config import config_type as config_type
from neorl_train._config import validate as validate
from neorl_train._config_file import load_toml as load_toml
from neorl_train._errors import BadInputError as BadInputError
from neorl_train._errors import InterruptedRunError as InterruptedRunError
from neorl_train._evaluate import evaluate as evaluate
from neorl_train._evaluate_files import read_evaluation as read_evaluation
from neorl_train._evaluate_files import read_verdict as read_verdict
from neorl_train._evaluate_files import write_evaluation as write_evaluation
from neorl_train._evaluate_offline import evaluate_offline as evaluate_offline
from neorl_train._evaluate_results import Evaluation as Evaluation
from neorl_train._evaluate_tables import ResultTables as ResultTables
from neorl_train._experience import Experience as Experience
from neorl_train._experience import experience as experience
from neorl_train._job import resume as resume
from neorl_train._job import start as start
from neorl_train._lanes import PROGRAM_FORM as PROGRAM_FORM
from neorl_train._lanes import SeedLanes as SeedLanes
from neorl_train._lanes import TrainingData as TrainingData
from neorl_train._loop import run_keys as run_keys
from neorl_train._loop import train_block as train_block
from neorl_train._manifest import tree_digest as tree_digest
from neorl_train._process import prepare_process as prepare_process
from neorl_train._progress import Reporter as Reporter
from neorl_train._records import Records as Records
from neorl_train._records import read_records as read_records
from neorl_train._run_directory import RunDirectory as RunDirectory
from neorl_train._timings import Timings as Timings
from neorl_train._training import Plan as Plan
from neorl_train._training import Trained as Trained
from neorl_train._training import Watcher as Watcher
from neorl_train._training import train as train
from neorl_train._verdict import Verdict as Verdict
from neorl_train._verdict import verdict as verdict

__all__ = [
    "PROGRAM_FORM",
    "BadInputError",
    "CheckpointConfig",
    "Checkpoints",
    "Config",
    "DataConfig",
    "Evaluation",
    "EvaluationConfig",
    "Experience",
    "InterruptedRunError",
    "OutputConfig",
    "Plan",
    "Records",
    "Reporter",
    "Restored",
    "ResultTables",
    "RunDirectory",
    "SeedLanes",
    "Timings",
    "Trained",
    "TrainingConfig",
    "TrainingData",
    "Verdict",
    "Watcher",
    "complete_steps",
    "config_hash",
    "config_to_dict",
    "config_type",
    "evaluate",
    "evaluate_offline",
    "experience",
    "load_toml",
    "prepare_process",
    "read_config",
    "read_evaluation",
    "read_records",
    "read_verdict",
    "resume",
    "run_keys",
    "start",
    "train",
    "train_block",
    "tree_digest",
    "validate",
    "verdict",
    "write_evaluation",
]
