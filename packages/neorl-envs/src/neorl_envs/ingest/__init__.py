"""Readers and writers of dataset files in many formats, and the table of readers."""

from neorl_envs.ingest._d4rl import write_d4rl as write_d4rl
from neorl_envs.ingest._minari import write_minari as write_minari
from neorl_envs.ingest._neorl2 import write_neorl2 as write_neorl2
from neorl_envs.ingest._readers import READERS as READERS
from neorl_envs.ingest._readers import Reader as Reader
from neorl_envs.ingest._readers import log_suffixes as log_suffixes
from neorl_envs.ingest._readers import reader_name as reader_name
from neorl_envs.ingest._readers import register_reader as register_reader
from neorl_envs.ingest._rollouts import Rollout as Rollout
from neorl_envs.ingest._rollouts import collect_rollouts as collect_rollouts
from neorl_envs.ingest._rollouts import dataset_from_rollouts as dataset_from_rollouts
from neorl_envs.ingest._rollouts import rollouts_of as rollouts_of
from neorl_envs.ingest._rollouts import spec_of_spaces as spec_of_spaces

__all__ = [
    "READERS",
    "Reader",
    "Rollout",
    "collect_rollouts",
    "dataset_from_rollouts",
    "log_suffixes",
    "reader_name",
    "register_reader",
    "rollouts_of",
    "spec_of_spaces",
    "write_d4rl",
    "write_minari",
    "write_neorl2",
]
