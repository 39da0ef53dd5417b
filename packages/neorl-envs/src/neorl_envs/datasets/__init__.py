"""Datasets of logged episodes, their files, and batches read from them."""

from neorl_envs.datasets._dataset import dataset_from_columns as dataset_from_columns
from neorl_envs.datasets._loop_tags import LoopTags as LoopTags
from neorl_envs.datasets._loop_tags import loops_of as loops_of
from neorl_envs.datasets._loops import FaceplateLoop as FaceplateLoop
from neorl_envs.datasets._loops import TodaysController as TodaysController
from neorl_envs.datasets._loops import TodaysFaceplate as TodaysFaceplate
from neorl_envs.datasets._loops import todays_controller as todays_controller
from neorl_envs.datasets._nested import flatten_columns as flatten_columns
from neorl_envs.datasets._shards import require_content_hash as require_content_hash
from neorl_envs.datasets._shards import stored_bytes as stored_bytes
from neorl_envs.datasets._shards import write_manifest as write_manifest
from neorl_envs.datasets._shards import write_shards as write_shards
from neorl_envs.datasets._statistics import data_statistics as data_statistics
from neorl_envs.datasets._statistics import split_episodes as split_episodes
from neorl_envs.datasets._statistics import split_indices as split_indices
from neorl_envs.datasets._stream import BatchStream as BatchStream
from neorl_envs.datasets._stream import batch_stream as batch_stream

__all__ = [
    "BatchStream",
    "FaceplateLoop",
    "LoopTags",
    "TodaysController",
    "TodaysFaceplate",
    "batch_stream",
    "data_statistics",
    "dataset_from_columns",
    "flatten_columns",
    "loops_of",
    "require_content_hash",
    "split_episodes",
    "split_indices",
    "stored_bytes",
    "todays_controller",
    "write_manifest",
    "write_shards",
]
