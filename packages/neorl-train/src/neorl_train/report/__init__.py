"""For people: the page, its pictures, the terminal."""

from neorl_train.report._page import write_report as write_report
from neorl_train.report._terminal import print_summary as print_summary

__all__ = [
    "print_summary",
    "write_report",
]
