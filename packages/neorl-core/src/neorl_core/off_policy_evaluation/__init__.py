"""Estimates of the return of one policy from the log of another."""

from neorl_core.off_policy_evaluation._doubly_robust import (
    doubly_robust_return as doubly_robust_return,
)
from neorl_core.off_policy_evaluation._doubly_robust import (
    weighted_doubly_robust as weighted_doubly_robust,
)
from neorl_core.off_policy_evaluation._importance_sampling import (
    LoggedTrajectories as LoggedTrajectories,
)
from neorl_core.off_policy_evaluation._importance_sampling import (
    effective_sample_size as effective_sample_size,
)
from neorl_core.off_policy_evaluation._importance_sampling import pdis_return as pdis_return
from neorl_core.off_policy_evaluation._importance_sampling import tis_return as tis_return
from neorl_core.off_policy_evaluation._importance_sampling import wis as wis
from neorl_core.off_policy_evaluation._importance_sampling import wpdis as wpdis
from neorl_core.off_policy_evaluation._magic import Magic as Magic
from neorl_core.off_policy_evaluation._magic import magic as magic
from neorl_core.off_policy_evaluation._marginalised import (
    marginalised_doubly_robust as marginalised_doubly_robust,
)
from neorl_core.off_policy_evaluation._marginalised import (
    marginalised_return as marginalised_return,
)

__all__ = [
    "LoggedTrajectories",
    "Magic",
    "doubly_robust_return",
    "effective_sample_size",
    "magic",
    "marginalised_doubly_robust",
    "marginalised_return",
    "pdis_return",
    "tis_return",
    "weighted_doubly_robust",
    "wis",
    "wpdis",
]
