"""The page that a plant engineer reads."""

from neorl_train.report._page import REPORT as REPORT
from neorl_train.report._page import write_report as write_report

__all__ = ["REPORT", "write_report"]
