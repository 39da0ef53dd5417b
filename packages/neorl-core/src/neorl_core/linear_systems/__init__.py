"""Linear plants: sampling and identification."""

from neorl_core._internal.missing_names import missing_name
from neorl_core.linear_systems._least_squares import ArxModel as ArxModel
from neorl_core.linear_systems._least_squares import LinearModel as LinearModel
from neorl_core.linear_systems._least_squares import identify_arx as identify_arx
from neorl_core.linear_systems._least_squares import identify_linear as identify_linear
from neorl_core.linear_systems._subspace import SubspaceModel as SubspaceModel
from neorl_core.linear_systems._subspace import identify_subspace as identify_subspace
from neorl_core.linear_systems._zero_order_hold import zero_order_hold as zero_order_hold

__all__ = [
    "ArxModel",
    "LinearModel",
    "SubspaceModel",
    "identify_arx",
    "identify_linear",
    "identify_subspace",
    "zero_order_hold",
]
globals()["__getattr__"] = missing_name(__name__, __all__)
