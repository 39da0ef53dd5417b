"""What a log holds, and what is doubtful in it."""

from neorl_envs.inspection._html import report_html as report_html
from neorl_envs.inspection._report import dataset_report as dataset_report
from neorl_envs.inspection._text import report_text as report_text

__all__ = [
    "dataset_report",
    "report_html",
    "report_text",
]
