"""Returns and advantages of one recorded trajectory, or of a flat log of many.

With a discount near one, sums over long logs lose digits in float32. ``discount`` itself is
rounded, and each step rounds the return by up to 6e-8 of its value, always in the same direction if
rewards repeat. The error can reach ``1.2e-7 / (1 - discount)`` of the return: for
``discount=0.99999`` and three million rewards of one, the result is 99474 instead of 100000.
Rewards in float64, under ``jax.enable_x64(True)``, avoid this.
"""

from neorl_core.returns._discounted import discounted_returns as discounted_returns
from neorl_core.returns._lambda_returns import generalised_advantages as generalised_advantages
from neorl_core.returns._lambda_returns import (
    segment_generalised_advantages as segment_generalised_advantages,
)
from neorl_core.returns._lambda_returns import (
    segment_td_lambda_returns as segment_td_lambda_returns,
)
from neorl_core.returns._lambda_returns import td_lambda_returns as td_lambda_returns
from neorl_core.returns._n_step import n_step_returns as n_step_returns
from neorl_core.returns._n_step import segment_n_step_returns as segment_n_step_returns

__all__ = [
    "discounted_returns",
    "generalised_advantages",
    "n_step_returns",
    "segment_generalised_advantages",
    "segment_n_step_returns",
    "segment_td_lambda_returns",
    "td_lambda_returns",
]
