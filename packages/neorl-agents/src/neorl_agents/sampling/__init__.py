"""Samplers, one per file, which choose the rows of every update."""

from neorl_agents.sampling._best_episodes import BestEpisodes as BestEpisodes
from neorl_agents.sampling._bootstrap import BootstrappedEpisodes as BootstrappedEpisodes
from neorl_agents.sampling._bootstrap import BootstrapTables as BootstrapTables
from neorl_agents.sampling._bootstrap import bootstrap_weights as bootstrap_weights
from neorl_agents.sampling._histories import Histories as Histories
from neorl_agents.sampling._histories import HistoryTables as HistoryTables
from neorl_agents.sampling._histories_with_returns import (
    HistoriesWithReturns as HistoriesWithReturns,
)
from neorl_agents.sampling._histories_with_returns import ToGoTables as ToGoTables
from neorl_agents.sampling._n_step import NSteps as NSteps
from neorl_agents.sampling._protocol import Batch as Batch
from neorl_agents.sampling._protocol import ReturnsToGo as ReturnsToGo
from neorl_agents.sampling._protocol import Sampler as Sampler
from neorl_agents.sampling._protocol import as_batch as as_batch
from neorl_agents.sampling._returns import RowsWithReturns as RowsWithReturns
from neorl_agents.sampling._returns import returns_to_go as returns_to_go
from neorl_agents.sampling._rows import Rows as Rows

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
    "returns_to_go",
]
