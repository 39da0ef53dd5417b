"""Reports on the content of a log and its possible problems."""

from neorl_envs.inspection._channels import standstills as standstills
from neorl_envs.inspection._contradictions import (
    contradiction_sentences as contradiction_sentences,
)
from neorl_envs.inspection._contradictions import contradictions as contradictions
from neorl_envs.inspection._contradictions import interlock_report as interlock_report
from neorl_envs.inspection._html import Trends as Trends
from neorl_envs.inspection._html import report_html as report_html
from neorl_envs.inspection._html import trends as trends
from neorl_envs.inspection._report import dataset_report as dataset_report
from neorl_envs.inspection._report import report_text as report_text
from neorl_envs.inspection._signals import signal_warnings as signal_warnings
from neorl_envs.inspection._wording import log_zone as log_zone
from neorl_envs.inspection._wording import moment as moment

__all__ = [
    "Trends",
    "contradiction_sentences",
    "contradictions",
    "dataset_report",
    "interlock_report",
    "log_zone",
    "moment",
    "report_html",
    "report_text",
    "signal_warnings",
    "standstills",
    "trends",
]
