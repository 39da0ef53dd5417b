"""Action distributions as functions of their parameters."""

from neorl_core.distributions._beta import beta_entropy as beta_entropy
from neorl_core.distributions._beta import beta_log_prob as beta_log_prob
from neorl_core.distributions._beta import beta_mean as beta_mean
from neorl_core.distributions._beta import beta_mode as beta_mode
from neorl_core.distributions._beta import beta_sample as beta_sample
from neorl_core.distributions._categorical import categorical_entropy as categorical_entropy
from neorl_core.distributions._categorical import categorical_kl as categorical_kl
from neorl_core.distributions._categorical import (
    categorical_log_prob as categorical_log_prob,
)
from neorl_core.distributions._categorical import categorical_mode as categorical_mode
from neorl_core.distributions._categorical import categorical_sample as categorical_sample
from neorl_core.distributions._diagonal_gaussian import (
    diagonal_gaussian_entropy as diagonal_gaussian_entropy,
)
from neorl_core.distributions._diagonal_gaussian import diagonal_gaussian_kl as diagonal_gaussian_kl
from neorl_core.distributions._diagonal_gaussian import (
    diagonal_gaussian_log_prob as diagonal_gaussian_log_prob,
)
from neorl_core.distributions._diagonal_gaussian import (
    diagonal_gaussian_mode as diagonal_gaussian_mode,
)
from neorl_core.distributions._diagonal_gaussian import (
    diagonal_gaussian_sample as diagonal_gaussian_sample,
)
from neorl_core.distributions._mixture import (
    gaussian_mixture_log_prob as gaussian_mixture_log_prob,
)
from neorl_core.distributions._mixture import gaussian_mixture_mean as gaussian_mixture_mean
from neorl_core.distributions._mixture import gaussian_mixture_mode as gaussian_mixture_mode
from neorl_core.distributions._mixture import gaussian_mixture_sample as gaussian_mixture_sample
from neorl_core.distributions._tanh_gaussian import tanh_gaussian_entropy as tanh_gaussian_entropy
from neorl_core.distributions._tanh_gaussian import tanh_gaussian_kl as tanh_gaussian_kl
from neorl_core.distributions._tanh_gaussian import (
    tanh_gaussian_latent_log_prob as tanh_gaussian_latent_log_prob,
)
from neorl_core.distributions._tanh_gaussian import (
    tanh_gaussian_log_prob as tanh_gaussian_log_prob,
)
from neorl_core.distributions._tanh_gaussian import tanh_gaussian_mode as tanh_gaussian_mode
from neorl_core.distributions._tanh_gaussian import tanh_gaussian_sample as tanh_gaussian_sample
from neorl_core.distributions._truncated_normal import (
    truncated_normal_entropy as truncated_normal_entropy,
)
from neorl_core.distributions._truncated_normal import (
    truncated_normal_log_prob as truncated_normal_log_prob,
)
from neorl_core.distributions._truncated_normal import (
    truncated_normal_mean as truncated_normal_mean,
)
from neorl_core.distributions._truncated_normal import (
    truncated_normal_mode as truncated_normal_mode,
)
from neorl_core.distributions._truncated_normal import (
    truncated_normal_sample as truncated_normal_sample,
)

__all__ = [
    "beta_entropy",
    "beta_log_prob",
    "beta_mean",
    "beta_mode",
    "beta_sample",
    "categorical_entropy",
    "categorical_kl",
    "categorical_log_prob",
    "categorical_mode",
    "categorical_sample",
    "diagonal_gaussian_entropy",
    "diagonal_gaussian_kl",
    "diagonal_gaussian_log_prob",
    "diagonal_gaussian_mode",
    "diagonal_gaussian_sample",
    "gaussian_mixture_log_prob",
    "gaussian_mixture_mean",
    "gaussian_mixture_mode",
    "gaussian_mixture_sample",
    "tanh_gaussian_entropy",
    "tanh_gaussian_kl",
    "tanh_gaussian_latent_log_prob",
    "tanh_gaussian_log_prob",
    "tanh_gaussian_mode",
    "tanh_gaussian_sample",
    "truncated_normal_entropy",
    "truncated_normal_log_prob",
    "truncated_normal_mean",
    "truncated_normal_mode",
    "truncated_normal_sample",
]
