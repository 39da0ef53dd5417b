"""What people read: the report of a run and other pages, their figures, the terminal."""

from typing import TYPE_CHECKING

from neorl_core.infrastructure import lazy_names

if TYPE_CHECKING:
    from neorl_train.pages._change_sheet import change_sheet as change_sheet
    from neorl_train.pages._change_sheet import write_change_sheet as write_change_sheet
    from neorl_train.pages._compared_logs import ComparedLoop as ComparedLoop
    from neorl_train.pages._compared_logs import compared_logs as compared_logs
    from neorl_train.pages._page import write_report as write_report
    from neorl_train.pages._periods_page import periods_page as periods_page
    from neorl_train.pages._safety_page import write_safety_report as write_safety_report
    from neorl_train.pages._terminal import fit_lines as fit_lines
    from neorl_train.pages._terminal import print_summary as print_summary
    from neorl_train.pages.sections._learning import plot_learning as plot_learning
    from neorl_train.pages.sections._loop_change import loop_change_section as loop_change_section
    from neorl_train.pages.sections._scores import learning_table as learning_table
    from neorl_train.pages.sections._trends import plot_episode as plot_episode

__all__ = [
    "ComparedLoop",
    "change_sheet",
    "compared_logs",
    "fit_lines",
    "learning_table",
    "loop_change_section",
    "periods_page",
    "plot_episode",
    "plot_learning",
    "print_summary",
    "write_change_sheet",
    "write_report",
    "write_safety_report",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__)
