"""Linear plants: sampling, stability, regulators, Kalman filters, identification."""

from neorl_core.linear_systems._arx import ArxModel as ArxModel
from neorl_core.linear_systems._arx import identify_arx as identify_arx
from neorl_core.linear_systems._identification import LinearModel as LinearModel
from neorl_core.linear_systems._identification import delay_residuals as delay_residuals
from neorl_core.linear_systems._identification import identify_linear as identify_linear
from neorl_core.linear_systems._integral_action import IntegralRegulator as IntegralRegulator
from neorl_core.linear_systems._integral_action import integral_regulator as integral_regulator
from neorl_core.linear_systems._integral_action import with_integrals as with_integrals
from neorl_core.linear_systems._kalman import KalmanFilter as KalmanFilter
from neorl_core.linear_systems._kalman import StateEstimate as StateEstimate
from neorl_core.linear_systems._kalman import kalman_filter as kalman_filter
from neorl_core.linear_systems._kalman import kalman_predict as kalman_predict
from neorl_core.linear_systems._kalman import kalman_update as kalman_update
from neorl_core.linear_systems._lyapunov import discrete_lyapunov as discrete_lyapunov
from neorl_core.linear_systems._reachability import controllability_matrix as controllability_matrix
from neorl_core.linear_systems._reachability import controllable as controllable
from neorl_core.linear_systems._reachability import detectable as detectable
from neorl_core.linear_systems._reachability import observable as observable
from neorl_core.linear_systems._reachability import stabilisable as stabilisable
from neorl_core.linear_systems._regulators import Regulator as Regulator
from neorl_core.linear_systems._regulators import (
    finite_horizon_regulator as finite_horizon_regulator,
)
from neorl_core.linear_systems._regulators import lq_regulator as lq_regulator
from neorl_core.linear_systems._riccati import discrete_riccati as discrete_riccati
from neorl_core.linear_systems._stability import is_stable as is_stable
from neorl_core.linear_systems._stability import spectral_radius as spectral_radius
from neorl_core.linear_systems._subspace import SubspaceModel as SubspaceModel
from neorl_core.linear_systems._subspace import identify_subspace as identify_subspace
from neorl_core.linear_systems._tustin import tustin as tustin
from neorl_core.linear_systems._zero_order_hold import zero_order_hold as zero_order_hold

__all__ = [
    "ArxModel",
    "IntegralRegulator",
    "KalmanFilter",
    "LinearModel",
    "Regulator",
    "StateEstimate",
    "SubspaceModel",
    "controllability_matrix",
    "controllable",
    "delay_residuals",
    "detectable",
    "discrete_lyapunov",
    "discrete_riccati",
    "finite_horizon_regulator",
    "identify_arx",
    "identify_linear",
    "identify_subspace",
    "integral_regulator",
    "is_stable",
    "kalman_filter",
    "kalman_predict",
    "kalman_update",
    "lq_regulator",
    "observable",
    "spectral_radius",
    "stabilisable",
    "tustin",
    "with_integrals",
    "zero_order_hold",
]
