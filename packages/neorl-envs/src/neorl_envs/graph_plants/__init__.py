"""Plants that are graphs: their channels name nodes and edges, and their topology may change."""

from neorl_envs.graph_plants._load_balance import LoadBalance as LoadBalance
from neorl_envs.graph_plants._load_balance import load_balance as load_balance
from neorl_envs.graph_plants._load_balance_data import Balance as Balance
from neorl_envs.graph_plants._load_balance_data import BalanceNoise as BalanceNoise
from neorl_envs.graph_plants._load_balance_data import BalanceState as BalanceState
from neorl_envs.graph_plants._load_balance_data import Topology as Topology
from neorl_envs.graph_plants._load_balance_experts import GreedyBalance as GreedyBalance
from neorl_envs.graph_plants._load_balance_experts import RandomMoves as RandomMoves
from neorl_envs.graph_plants._load_balance_experts import diffusion_rewards as diffusion_rewards

__all__ = [
    "Balance",
    "BalanceNoise",
    "BalanceState",
    "GreedyBalance",
    "LoadBalance",
    "RandomMoves",
    "Topology",
    "diffusion_rewards",
    "load_balance",
]
