"""Published logs: hashes and statistics of the logs of every plant by quality, seed and size.

A log is generated, not downloaded; its hash is published. Identical bits are guaranteed only with
the settings and the numerical environment of the record (:func:`numerical_environment`). Another
compiler version or instruction set rounds differently; there, a log is compared by its statistics.
"""

from neorl_envs.published._logs import SIZES as SIZES
from neorl_envs.published._logs import SPREAD as SPREAD
from neorl_envs.published._logs import Comparison as Comparison
from neorl_envs.published._logs import PublishedLog as PublishedLog
from neorl_envs.published._logs import compare_log as compare_log
from neorl_envs.published._logs import log_size as log_size
from neorl_envs.published._logs import log_statistics as log_statistics
from neorl_envs.published._logs import numerical_environment as numerical_environment
from neorl_envs.published._logs import published_logs as published_logs
from neorl_envs.published._logs import settings_digest as settings_digest

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
