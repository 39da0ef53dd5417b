"""Networks, offline reinforcement learning algorithms and the policy artefact."""

from neorl_agents.algorithms._awac import AWAC as AWAC
from neorl_agents.algorithms._bc import BC as BC
from neorl_agents.algorithms._cql import CQL as CQL
from neorl_agents.algorithms._cql import CalQL as CalQL
from neorl_agents.algorithms._decision_transformer import (
    DecisionTransformer as DecisionTransformer,
)
from neorl_agents.algorithms._edac import EDAC as EDAC
from neorl_agents.algorithms._fql import FQL as FQL
from neorl_agents.algorithms._iql import IQL as IQL
from neorl_agents.algorithms._rebrac import ReBRAC as ReBRAC
from neorl_agents.algorithms._sac_n import SACN as SACN
from neorl_agents.algorithms._table import ALGORITHMS as ALGORITHMS
from neorl_agents.algorithms._td3_bc import TD3BC as TD3BC
from neorl_agents.algorithms._xql import XQL as XQL
from neorl_agents.algorithms.constrained._bc_safe import BCSafe as BCSafe
from neorl_agents.algorithms.constrained._bcq_lag import BCQLag as BCQLag
from neorl_agents.algorithms.constrained._caps import CAPS as CAPS
from neorl_agents.algorithms.constrained._cdt import CDT as CDT
from neorl_agents.algorithms.constrained._coptidice import COptiDICE as COptiDICE
from neorl_agents.algorithms.constrained._cpq import CPQ as CPQ
from neorl_agents.algorithms.constrained._fisor import FISOR as FISOR
from neorl_agents.algorithms.constrained._iql_lag import IQLLag as IQLLag
from neorl_agents.algorithms.constrained._ppo_lag import PPOLag as PPOLag
from neorl_agents.algorithms.constrained._reinforce_lag import ReinforceLag as ReinforceLag
from neorl_agents.algorithms.constrained._td3_bc_lag import TD3BCLag as TD3BCLag
from neorl_agents.algorithms.model_based._combo import COMBO as COMBO
from neorl_agents.algorithms.model_based._mobile import MOBILE as MOBILE
from neorl_agents.algorithms.model_based._mopo import MOPO as MOPO
from neorl_agents.algorithms.model_based._morel import MOReL as MOReL
from neorl_agents.algorithms.model_based._rambo import RAMBO as RAMBO
from neorl_agents.algorithms.online._dqn import DQN as DQN
from neorl_agents.algorithms.online._ppo import PPO as PPO
from neorl_agents.algorithms.online._reinforce import Reinforce as Reinforce
from neorl_agents.algorithms.online._sac import SAC as SAC
from neorl_agents.algorithms.online._td3 import TD3 as TD3
from neorl_agents.artefact._artefact import ArtefactError as ArtefactError
from neorl_agents.artefact._artefact import PolicyArtefact as PolicyArtefact
from neorl_agents.artefact._artefact import load_policy as load_policy
from neorl_agents.artefact._artefact import save_policy as save_policy
from neorl_agents.learning import Algorithm as Algorithm
from neorl_agents.learning import BaseLearner as BaseLearner
from neorl_agents.learning import Explorer as Explorer
from neorl_agents.learning import Learner as Learner
from neorl_agents.learning import LearnerState as LearnerState

__all__ = [
    "ALGORITHMS",
    "AWAC",
    "BC",
    "CAPS",
    "CDT",
    "COMBO",
    "CPQ",
    "CQL",
    "DQN",
    "EDAC",
    "FISOR",
    "FQL",
    "IQL",
    "MOBILE",
    "MOPO",
    "PPO",
    "RAMBO",
    "SAC",
    "SACN",
    "TD3",
    "TD3BC",
    "XQL",
    "Algorithm",
    "ArtefactError",
    "BCQLag",
    "BCSafe",
    "BaseLearner",
    "COptiDICE",
    "CalQL",
    "DecisionTransformer",
    "Explorer",
    "IQLLag",
    "Learner",
    "LearnerState",
    "MOReL",
    "PPOLag",
    "PolicyArtefact",
    "ReBRAC",
    "Reinforce",
    "ReinforceLag",
    "TD3BCLag",
    "load_policy",
    "save_policy",
]
