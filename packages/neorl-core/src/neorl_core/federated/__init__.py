"""Combining the updates of many clients, some of which may be faulty."""

from neorl_core._internal.missing_names import missing_name
from neorl_core.federated._client_updates import Aggregate as Aggregate
from neorl_core.federated._gossip import averaging_rounds as averaging_rounds
from neorl_core.federated._gossip import gossip_step as gossip_step
from neorl_core.federated._gossip import hierarchical_mixing as hierarchical_mixing
from neorl_core.federated._gossip import metropolis_mixing as metropolis_mixing
from neorl_core.federated._gossip import mixing_rate as mixing_rate
from neorl_core.federated._gossip import ring_mixing as ring_mixing
from neorl_core.federated._gossip import star_mixing as star_mixing
from neorl_core.federated._private_mean import clip_update as clip_update
from neorl_core.federated._private_mean import private_mean as private_mean
from neorl_core.federated._rules import bulyan as bulyan
from neorl_core.federated._rules import centred_clipping as centred_clipping
from neorl_core.federated._rules import coordinate_median as coordinate_median
from neorl_core.federated._rules import geometric_median as geometric_median
from neorl_core.federated._rules import krum as krum
from neorl_core.federated._rules import multi_krum as multi_krum
from neorl_core.federated._rules import trimmed_mean as trimmed_mean
from neorl_core.federated._rules import weighted_mean as weighted_mean

__all__ = [
    "Aggregate",
    "averaging_rounds",
    "bulyan",
    "centred_clipping",
    "clip_update",
    "coordinate_median",
    "geometric_median",
    "gossip_step",
    "hierarchical_mixing",
    "krum",
    "metropolis_mixing",
    "mixing_rate",
    "multi_krum",
    "private_mean",
    "ring_mixing",
    "star_mixing",
    "trimmed_mean",
    "weighted_mean",
]
globals()["__getattr__"] = missing_name(__name__, __all__)
