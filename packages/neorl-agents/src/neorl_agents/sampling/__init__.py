"""Which rows an update sees: one sampler a file, asked by the training loop."""

from neorl_agents.sampling._best_episodes import BestEpisodes as BestEpisodes
from neorl_agents.sampling._histories import Histories as Histories
from neorl_agents.sampling._histories import HistoryTables as HistoryTables
from neorl_agents.sampling._protocol import Sampler as Sampler
from neorl_agents.sampling._protocol import sampler_of as sampler_of
from neorl_agents.sampling._returns import Reference as Reference
from neorl_agents.sampling._returns import RowsWithReturns as RowsWithReturns
from neorl_agents.sampling._returns import returns_to_go as returns_to_go
from neorl_agents.sampling._rows import Rows as Rows

__all__ = [
    "BestEpisodes",
    "Histories",
    "HistoryTables",
    "Reference",
    "Rows",
    "RowsWithReturns",
    "Sampler",
    "returns_to_go",
    "sampler_of",
]
