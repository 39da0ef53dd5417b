"""Building blocks of simulated plants: constants, relations, actuators, instruments, limits."""

from neorl_envs.blocks._constants import Constant as Constant
from neorl_envs.blocks._constants import Relation as Relation
from neorl_envs.blocks._constants import check_constants as check_constants
from neorl_envs.blocks._constants import check_relations as check_relations
from neorl_envs.blocks._constants import constant as constant
from neorl_envs.blocks._constants import constant_values as constant_values
from neorl_envs.blocks._constants import named_constants as named_constants
from neorl_envs.blocks._constants import sampled_constants as sampled_constants
from neorl_envs.blocks._devices import Actuator as Actuator
from neorl_envs.blocks._devices import ActuatorParameters as ActuatorParameters
from neorl_envs.blocks._devices import ActuatorState as ActuatorState
from neorl_envs.blocks._devices import Instrument as Instrument
from neorl_envs.blocks._devices import InstrumentNoise as InstrumentNoise
from neorl_envs.blocks._devices import InstrumentParameters as InstrumentParameters
from neorl_envs.blocks._devices import InstrumentState as InstrumentState
from neorl_envs.blocks._disturbances import autoregressive as autoregressive
from neorl_envs.blocks._disturbances import random_step as random_step
from neorl_envs.blocks._feedforward import FeedforwardPID as FeedforwardPID
from neorl_envs.blocks._feedforward import handle as handle
from neorl_envs.blocks._feedforward import no_feedforward as no_feedforward
from neorl_envs.blocks._integrate import runge_kutta as runge_kutta
from neorl_envs.blocks._limits import Limit as Limit
from neorl_envs.blocks._limits import Term as Term

__all__ = [
    "Actuator",
    "ActuatorParameters",
    "ActuatorState",
    "Constant",
    "FeedforwardPID",
    "Instrument",
    "InstrumentNoise",
    "InstrumentParameters",
    "InstrumentState",
    "Limit",
    "Relation",
    "Term",
    "autoregressive",
    "check_constants",
    "check_relations",
    "constant",
    "constant_values",
    "handle",
    "named_constants",
    "no_feedforward",
    "random_step",
    "runge_kutta",
    "sampled_constants",
]
