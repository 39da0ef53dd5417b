"""Lag regressions that describe the loop between one output and one input."""

from neorl_agents.classical.lags._regression import LagModel as LagModel
from neorl_agents.classical.lags._regression import regress_on_lags as regress_on_lags
from neorl_agents.classical.lags._search import LagSearch as LagSearch
from neorl_agents.classical.lags._search import lag_search as lag_search
from neorl_agents.classical.lags._search import whitening_filter as whitening_filter

__all__ = ["LagModel", "LagSearch", "lag_search", "regress_on_lags", "whitening_filter"]
