"""Gradient steps by optax, and the extensible table of optimisers by name."""

from neorl_agents.optimisers._descent import descend as descend
from neorl_agents.optimisers._descent import init_optimiser as init_optimiser
from neorl_agents.optimisers._descent import minimise as minimise
from neorl_agents.optimisers._table import OPTIMISERS as OPTIMISERS
from neorl_agents.optimisers._table import Optimiser as Optimiser

__all__ = ["OPTIMISERS", "Optimiser", "descend", "init_optimiser", "minimise"]
