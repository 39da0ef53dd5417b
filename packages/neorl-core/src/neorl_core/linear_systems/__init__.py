"""Linear plants: sampling, stability, regulators, filters, identification."""

from neorl_core.linear_systems._identification import LinearModel as LinearModel
from neorl_core.linear_systems._identification import delay_residuals as delay_residuals
from neorl_core.linear_systems._identification import identify_linear as identify_linear
from neorl_core.linear_systems._riccati import KalmanFilter as KalmanFilter
from neorl_core.linear_systems._riccati import Regulator as Regulator
from neorl_core.linear_systems._riccati import discrete_riccati as discrete_riccati
from neorl_core.linear_systems._riccati import finite_horizon_regulator as finite_horizon_regulator
from neorl_core.linear_systems._riccati import kalman_filter as kalman_filter
from neorl_core.linear_systems._riccati import lq_regulator as lq_regulator
from neorl_core.linear_systems._stability import controllability_matrix as controllability_matrix
from neorl_core.linear_systems._stability import controllable as controllable
from neorl_core.linear_systems._stability import discrete_lyapunov as discrete_lyapunov
from neorl_core.linear_systems._stability import observable as observable
from neorl_core.linear_systems._stability import spectral_radius as spectral_radius
from neorl_core.linear_systems._zero_order_hold import zero_order_hold as zero_order_hold

__all__ = [
    "KalmanFilter",
    "LinearModel",
    "Regulator",
    "controllability_matrix",
    "controllable",
    "delay_residuals",
    "discrete_lyapunov",
    "discrete_riccati",
    "finite_horizon_regulator",
    "identify_linear",
    "kalman_filter",
    "lq_regulator",
    "observable",
    "spectral_radius",
    "zero_order_hold",
]
