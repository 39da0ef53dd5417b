"""Action distributions as functions of their parameters."""

from neorl_core.distributions._categorical import categorical_entropy as categorical_entropy
from neorl_core.distributions._categorical import (
    categorical_log_prob as categorical_log_prob,
)
from neorl_core.distributions._diagonal_gaussian import (
    diagonal_gaussian_entropy as diagonal_gaussian_entropy,
)
from neorl_core.distributions._diagonal_gaussian import (
    diagonal_gaussian_log_prob as diagonal_gaussian_log_prob,
)
from neorl_core.distributions._diagonal_gaussian import (
    diagonal_gaussian_sample as diagonal_gaussian_sample,
)
from neorl_core.distributions._mixture import (
    gaussian_mixture_log_prob as gaussian_mixture_log_prob,
)
from neorl_core.distributions._tanh_gaussian import (
    tanh_gaussian_latent_log_prob as tanh_gaussian_latent_log_prob,
)
from neorl_core.distributions._tanh_gaussian import (
    tanh_gaussian_log_prob as tanh_gaussian_log_prob,
)
from neorl_core.distributions._tanh_gaussian import tanh_gaussian_sample as tanh_gaussian_sample

__all__ = [
    "categorical_entropy",
    "categorical_log_prob",
    "diagonal_gaussian_entropy",
    "diagonal_gaussian_log_prob",
    "diagonal_gaussian_sample",
    "gaussian_mixture_log_prob",
    "tanh_gaussian_latent_log_prob",
    "tanh_gaussian_log_prob",
    "tanh_gaussian_sample",
]
