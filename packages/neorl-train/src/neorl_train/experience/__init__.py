"""Training data of an algorithm, from a source of experience."""

from neorl_train.experience._experience import Experience as Experience
from neorl_train.experience._experience import training_experience as training_experience
from neorl_train.experience._log_cache import collected_log as collected_log
from neorl_train.experience._log_cache import complete_log as complete_log
from neorl_train.experience._source import FileSource as FileSource
from neorl_train.experience._source import PlantSource as PlantSource
from neorl_train.experience._source import declared_penalty as declared_penalty
from neorl_train.experience._source import simulator as simulator
from neorl_train.experience._source import source_named as source_named
from neorl_train.experience._split import check_batches as check_batches
from neorl_train.experience._split import check_split as check_split
from neorl_train.experience._streamed import StreamedData as StreamedData
from neorl_train.experience._streamed import streamed_data as streamed_data
from neorl_train.experience._training_data import TrainingData as TrainingData
from neorl_train.experience._training_data import training_data as training_data

__all__ = [
    "Experience",
    "FileSource",
    "PlantSource",
    "StreamedData",
    "TrainingData",
    "check_batches",
    "check_split",
    "collected_log",
    "complete_log",
    "declared_penalty",
    "simulator",
    "source_named",
    "streamed_data",
    "training_data",
    "training_experience",
]
