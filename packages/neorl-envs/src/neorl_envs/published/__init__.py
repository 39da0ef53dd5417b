"""Published logs: which content a plant's log has at given quality, seed and size, and where.

A log is generated, not downloaded; what is published is its hash. Equal bits are promised where
settings and numerical environment are those of the record (:func:`numerical_environment`); another
version of the compiler or another instruction set rounds differently, and there a log is compared
by its statistics.
"""

from neorl_envs.published._comparison import Comparison as Comparison
from neorl_envs.published._comparison import compare_log as compare_log
from neorl_envs.published._environment import numerical_environment as numerical_environment
from neorl_envs.published._records import SIZES as SIZES
from neorl_envs.published._records import SPREAD as SPREAD
from neorl_envs.published._records import PublishedLog as PublishedLog
from neorl_envs.published._records import log_size as log_size
from neorl_envs.published._records import log_statistics as log_statistics
from neorl_envs.published._records import published_logs as published_logs
from neorl_envs.published._settings import settings_digest as settings_digest

__all__ = [
    "SIZES",
    "SPREAD",
    "Comparison",
    "PublishedLog",
    "compare_log",
    "log_size",
    "log_statistics",
    "numerical_environment",
    "published_logs",
    "settings_digest",
]
