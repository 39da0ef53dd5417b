"""Control laws as policies, and the state that they carry."""

from neorl_core._internal.missing_names import missing_name
from neorl_core.control._delay_line import DelayLine as DelayLine
from neorl_core.control._delay_line import delay_line as delay_line
from neorl_core.control._delay_line import delay_step as delay_step
from neorl_core.control._pid import PID as PID
from neorl_core.control._pid import PIDCarry as PIDCarry
from neorl_core.control._pid import standard_pid as standard_pid
from neorl_core.control._policies import BaseStock as BaseStock
from neorl_core.control._policies import ConstantPolicy as ConstantPolicy
from neorl_core.control._policies import StateFeedback as StateFeedback
from neorl_core.control._policies import UniformPolicy as UniformPolicy
from neorl_core.control._policies import follow as follow
from neorl_core.control._tunables import Entry as Entry
from neorl_core.control._tunables import Tunable as Tunable
from neorl_core.control._tunables import TunableController as TunableController
from neorl_core.control._tunables import inside as inside
from neorl_core.control._tunables import tunable_values as tunable_values
from neorl_core.control._tunables import tunables as tunables
from neorl_core.control._tunables import tuned as tuned

__all__ = [
    "PID",
    "BaseStock",
    "ConstantPolicy",
    "DelayLine",
    "Entry",
    "PIDCarry",
    "StateFeedback",
    "Tunable",
    "TunableController",
    "UniformPolicy",
    "delay_line",
    "delay_step",
    "follow",
    "inside",
    "standard_pid",
    "tunable_values",
    "tunables",
    "tuned",
]
globals()["__getattr__"] = missing_name(__name__, __all__)
