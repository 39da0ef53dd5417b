"""The rows that a learner is trained on, from a source of data."""

from typing import TYPE_CHECKING

from neorl_core.infrastructure import lazy_names

if TYPE_CHECKING:
    from neorl_train.data._behaviours import incumbent_episodes as incumbent_episodes
    from neorl_train.data._behaviours import own_episodes as own_episodes
    from neorl_train.data._behaviours import padded_episodes as padded_episodes
    from neorl_train.data._behaviours import recorded_tunings as recorded_tunings
    from neorl_train.data._behaviours import usual_incumbent as usual_incumbent
    from neorl_train.data._data_warnings import clock_warnings as clock_warnings
    from neorl_train.data._data_warnings import (
        constant_fallback_warnings as constant_fallback_warnings,
    )
    from neorl_train.data._data_warnings import data_warnings as data_warnings
    from neorl_train.data._data_warnings import doubling_steps as doubling_steps
    from neorl_train.data._data_warnings import log_warnings as log_warnings
    from neorl_train.data._data_warnings import zero_limits as zero_limits
    from neorl_train.data._experience import Experience as Experience
    from neorl_train.data._experience import check_batches as check_batches
    from neorl_train.data._experience import check_split as check_split
    from neorl_train.data._experience import training_experience as training_experience
    from neorl_train.data._experience import training_sample as training_sample
    from neorl_train.data._source import FileSource as FileSource
    from neorl_train.data._source import PlantSource as PlantSource
    from neorl_train.data._source import changed_plant as changed_plant
    from neorl_train.data._source import collected_log as collected_log
    from neorl_train.data._source import complete_log as complete_log
    from neorl_train.data._source import declared_penalty as declared_penalty
    from neorl_train.data._source import is_streamed as is_streamed
    from neorl_train.data._source import read_log as read_log
    from neorl_train.data._source import simulator as simulator
    from neorl_train.data._source import source_named as source_named
    from neorl_train.data._training_data import StreamedData as StreamedData
    from neorl_train.data._training_data import TrainingData as TrainingData
    from neorl_train.data._training_data import streamed_data as streamed_data
    from neorl_train.data._training_data import training_data as training_data

__all__ = [
    "Experience",
    "FileSource",
    "PlantSource",
    "StreamedData",
    "TrainingData",
    "changed_plant",
    "check_batches",
    "check_split",
    "clock_warnings",
    "collected_log",
    "complete_log",
    "constant_fallback_warnings",
    "data_warnings",
    "declared_penalty",
    "doubling_steps",
    "incumbent_episodes",
    "is_streamed",
    "log_warnings",
    "own_episodes",
    "padded_episodes",
    "read_log",
    "recorded_tunings",
    "simulator",
    "source_named",
    "streamed_data",
    "training_data",
    "training_experience",
    "training_sample",
    "usual_incumbent",
    "zero_limits",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__)
