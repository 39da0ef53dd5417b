"""A local page for a loop: trends, ranges, who acts and why, alarms, state. Needs only NumPy."""

from neorl_deploy.dashboard._page import live_page as live_page
from neorl_deploy.dashboard._page import still_page as still_page

__all__ = ["live_page", "still_page"]
