"""What a log holds, and what is doubtful in it."""

from neorl_envs.inspection._report import dataset_report as dataset_report
from neorl_envs.inspection._text import report_text as report_text

__all__ = [
    "dataset_report",
    "report_text",
]
