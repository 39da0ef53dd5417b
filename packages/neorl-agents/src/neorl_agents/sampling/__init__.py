"""Samplers, one per file, which choose the rows of every update."""

from neorl_agents.sampling._histories import Histories as Histories
from neorl_agents.sampling._histories import (
    HistoriesWithReturns as HistoriesWithReturns,
)
from neorl_agents.sampling._histories import HistoryTables as HistoryTables
from neorl_agents.sampling._histories import ToGoTables as ToGoTables
from neorl_agents.sampling._histories import next_windows as next_windows
from neorl_agents.sampling._histories import windows as windows
from neorl_agents.sampling._rows import Batch as Batch
from neorl_agents.sampling._rows import BestEpisodes as BestEpisodes
from neorl_agents.sampling._rows import BootstrappedEpisodes as BootstrappedEpisodes
from neorl_agents.sampling._rows import BootstrapTables as BootstrapTables
from neorl_agents.sampling._rows import NSteps as NSteps
from neorl_agents.sampling._rows import ReturnsToGo as ReturnsToGo
from neorl_agents.sampling._rows import Rows as Rows
from neorl_agents.sampling._rows import RowsWithReturns as RowsWithReturns
from neorl_agents.sampling._rows import Sampler as Sampler
from neorl_agents.sampling._rows import as_batch as as_batch
from neorl_agents.sampling._rows import bootstrap_weights as bootstrap_weights
from neorl_agents.sampling._rows import returns_to_go as returns_to_go

__all__ = [
    "Batch",
    "BestEpisodes",
    "BootstrapTables",
    "BootstrappedEpisodes",
    "Histories",
    "HistoriesWithReturns",
    "HistoryTables",
    "NSteps",
    "ReturnsToGo",
    "Rows",
    "RowsWithReturns",
    "Sampler",
    "ToGoTables",
    "as_batch",
    "bootstrap_weights",
    "next_windows",
    "returns_to_go",
    "windows",
]
