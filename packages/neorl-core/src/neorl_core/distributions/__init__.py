"""Distributions of actions as functions of their parameters."""

from neorl_core.distributions._categorical import categorical_entropy as categorical_entropy
from neorl_core.distributions._categorical import categorical_kl as categorical_kl
from neorl_core.distributions._categorical import (
    categorical_log_probability as categorical_log_probability,
)
from neorl_core.distributions._categorical import categorical_mode as categorical_mode
from neorl_core.distributions._categorical import categorical_sample as categorical_sample
from neorl_core.distributions._diagonal_gaussian import (
    diagonal_gaussian_entropy as diagonal_gaussian_entropy,
)
from neorl_core.distributions._diagonal_gaussian import diagonal_gaussian_kl as diagonal_gaussian_kl
from neorl_core.distributions._diagonal_gaussian import (
    diagonal_gaussian_log_density as diagonal_gaussian_log_density,
)
from neorl_core.distributions._diagonal_gaussian import (
    diagonal_gaussian_mode as diagonal_gaussian_mode,
)
from neorl_core.distributions._diagonal_gaussian import (
    diagonal_gaussian_sample as diagonal_gaussian_sample,
)
from neorl_core.distributions._tanh_gaussian import tanh_gaussian_entropy as tanh_gaussian_entropy
from neorl_core.distributions._tanh_gaussian import tanh_gaussian_kl as tanh_gaussian_kl
from neorl_core.distributions._tanh_gaussian import (
    tanh_gaussian_latent_log_density as tanh_gaussian_latent_log_density,
)
from neorl_core.distributions._tanh_gaussian import (
    tanh_gaussian_log_density as tanh_gaussian_log_density,
)
from neorl_core.distributions._tanh_gaussian import tanh_gaussian_mode as tanh_gaussian_mode
from neorl_core.distributions._tanh_gaussian import tanh_gaussian_sample as tanh_gaussian_sample

__all__ = [
    "categorical_entropy",
    "categorical_kl",
    "categorical_log_probability",
    "categorical_mode",
    "categorical_sample",
    "diagonal_gaussian_entropy",
    "diagonal_gaussian_kl",
    "diagonal_gaussian_log_density",
    "diagonal_gaussian_mode",
    "diagonal_gaussian_sample",
    "tanh_gaussian_entropy",
    "tanh_gaussian_kl",
    "tanh_gaussian_latent_log_density",
    "tanh_gaussian_log_density",
    "tanh_gaussian_mode",
    "tanh_gaussian_sample",
]
