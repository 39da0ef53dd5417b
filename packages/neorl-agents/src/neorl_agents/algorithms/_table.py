"""The learners by name: those of the package, registered ones, and those from entry points."""

from neorl_agents.algorithms._awac import AWAC
from neorl_agents.algorithms._bc import BC
from neorl_agents.algorithms._cql import CQL, CalQL
from neorl_agents.algorithms._decision_transformer import DecisionTransformer
from neorl_agents.algorithms._edac import EDAC
from neorl_agents.algorithms._fql import FQL
from neorl_agents.algorithms._iql import IQL
from neorl_agents.algorithms._rebrac import ReBRAC
from neorl_agents.algorithms._sac_n import SACN
from neorl_agents.algorithms._td3_bc import TD3BC
from neorl_agents.algorithms._xql import XQL
from neorl_agents.algorithms.constrained._bc_safe import BCSafe
from neorl_agents.algorithms.constrained._bcq_lag import BCQLag
from neorl_agents.algorithms.constrained._caps import CAPS
from neorl_agents.algorithms.constrained._cdt import CDT
from neorl_agents.algorithms.constrained._coptidice import COptiDICE
from neorl_agents.algorithms.constrained._cpq import CPQ
from neorl_agents.algorithms.constrained._fisor import FISOR
from neorl_agents.algorithms.constrained._iql_lag import IQLLag
from neorl_agents.algorithms.constrained._ppo_lag import PPOLag
from neorl_agents.algorithms.constrained._reinforce_lag import ReinforceLag
from neorl_agents.algorithms.constrained._td3_bc_lag import TD3BCLag
from neorl_agents.algorithms.model_based._combo import COMBO
from neorl_agents.algorithms.model_based._mobile import MOBILE
from neorl_agents.algorithms.model_based._mopo import MOPO
from neorl_agents.algorithms.model_based._morel import MOReL
from neorl_agents.algorithms.model_based._rambo import RAMBO
from neorl_agents.algorithms.online._dqn import DQN
from neorl_agents.algorithms.online._ppo import PPO
from neorl_agents.algorithms.online._reinforce import Reinforce
from neorl_agents.algorithms.online._sac import SAC
from neorl_agents.algorithms.online._td3 import TD3
from neorl_agents.learning import check_algorithm
from neorl_core.infrastructure import Registry

ALGORITHMS: Registry[type] = Registry(
    "neorl.algorithms",
    "algorithm",
    {
        "bc": BC,
        "bc_safe": BCSafe,
        "td3_bc": TD3BC,
        "iql": IQL,
        "cql": CQL,
        "cal_ql": CalQL,
        "awac": AWAC,
        "rebrac": ReBRAC,
        "sac_n": SACN,
        "edac": EDAC,
        "xql": XQL,
        "fql": FQL,
        "dt": DecisionTransformer,
        "td3_bc_lag": TD3BCLag,
        "bcq_lag": BCQLag,
        "cpq": CPQ,
        "fisor": FISOR,
        "coptidice": COptiDICE,
        "cdt": CDT,
        "caps": CAPS,
        "iql_lag": IQLLag,
        "mopo": MOPO,
        "mobile": MOBILE,
        "combo": COMBO,
        "rambo": RAMBO,
        "morel": MOReL,
        "sac": SAC,
        "td3": TD3,
        "dqn": DQN,
        "ppo": PPO,
        "ppo_lag": PPOLag,
        "reinforce": Reinforce,
        "reinforce_lag": ReinforceLag,
    },
    check_algorithm,
)
"""The class of every learner by the name that configurations use; other packages can add to it.

A distribution adds its own through the entry points ``neorl.algorithms``, a script through
``ALGORITHMS.register("crr", CRR)``; both are checked against :class:`neorl_agents.Algorithm`.
"""
