"""Plants that are graphs: channels are named by node or edge, and the topology may change."""

from neorl_envs.graph_plants._load_balance import Balance as Balance
from neorl_envs.graph_plants._load_balance import BalanceNoise as BalanceNoise
from neorl_envs.graph_plants._load_balance import BalanceState as BalanceState
from neorl_envs.graph_plants._load_balance import GreedyBalance as GreedyBalance
from neorl_envs.graph_plants._load_balance import LoadBalance as LoadBalance
from neorl_envs.graph_plants._load_balance import RandomMoves as RandomMoves
from neorl_envs.graph_plants._load_balance import Topology as Topology
from neorl_envs.graph_plants._load_balance import diffusion_rewards as diffusion_rewards
from neorl_envs.graph_plants._load_balance import load_balance as load_balance
from neorl_envs.graph_plants._swarm import Consensus as Consensus
from neorl_envs.graph_plants._swarm import RobotSwarm as RobotSwarm
from neorl_envs.graph_plants._swarm import robot_swarm as robot_swarm
from neorl_envs.graph_plants._swing import AveragingControl as AveragingControl
from neorl_envs.graph_plants._swing import Droop as Droop
from neorl_envs.graph_plants._swing import SwingNetwork as SwingNetwork
from neorl_envs.graph_plants._swing import swing_network as swing_network
from neorl_envs.graph_plants._traffic import QueueShares as QueueShares
from neorl_envs.graph_plants._traffic import TrafficNetwork as TrafficNetwork
from neorl_envs.graph_plants._traffic import traffic_network as traffic_network

__all__ = [
    "AveragingControl",
    "Balance",
    "BalanceNoise",
    "BalanceState",
    "Consensus",
    "Droop",
    "GreedyBalance",
    "LoadBalance",
    "QueueShares",
    "RandomMoves",
    "RobotSwarm",
    "SwingNetwork",
    "Topology",
    "TrafficNetwork",
    "diffusion_rewards",
    "load_balance",
    "robot_swarm",
    "swing_network",
    "traffic_network",
]
