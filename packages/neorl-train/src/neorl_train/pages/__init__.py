"""What people read: the report of a run and other pages, their figures, the terminal."""

from typing import TYPE_CHECKING

from neorl_core.infrastructure import lazy_names

if TYPE_CHECKING:
    from neorl_train.pages._page import write_report as write_report
    from neorl_train.pages._safety_page import write_safety_report as write_safety_report
    from neorl_train.pages._terminal import print_summary as print_summary
    from neorl_train.pages.sections._learning import plot_learning as plot_learning
    from neorl_train.pages.sections._trends import plot_episode as plot_episode

__all__ = [
    "plot_episode",
    "plot_learning",
    "print_summary",
    "write_report",
    "write_safety_report",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__)
