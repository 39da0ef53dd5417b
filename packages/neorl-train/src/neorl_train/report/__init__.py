"""Presents results to people: the page, its figures, the terminal output."""

from neorl_train.report._page import write_report as write_report
from neorl_train.report._plots import plot_episode as plot_episode
from neorl_train.report._plots import plot_learning as plot_learning
from neorl_train.report._terminal import print_summary as print_summary

__all__ = [
    "plot_episode",
    "plot_learning",
    "print_summary",
    "write_report",
]
