"""One learner a file, beside its paper."""

from neorl_agents.algorithms._awac import AWAC as AWAC
from neorl_agents.algorithms._bc import BC as BC
from neorl_agents.algorithms._cql import CQL as CQL
from neorl_agents.algorithms._cql import CalQL as CalQL
from neorl_agents.algorithms._edac import EDAC as EDAC
from neorl_agents.algorithms._iql import IQL as IQL
from neorl_agents.algorithms._rebrac import ReBRAC as ReBRAC
from neorl_agents.algorithms._sac_n import SACN as SACN
from neorl_agents.algorithms._table import ALGORITHMS as ALGORITHMS
from neorl_agents.algorithms._td3_bc import TD3BC as TD3BC
from neorl_agents.algorithms._xql import XQL as XQL

__all__ = [
    "ALGORITHMS",
    "AWAC",
    "BC",
    "CQL",
    "EDAC",
    "IQL",
    "SACN",
    "TD3BC",
    "XQL",
    "CalQL",
    "ReBRAC",
]
