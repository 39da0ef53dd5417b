"""Estimates of the return of one policy from the log of another."""

from neorl_core.off_policy_evaluation._doubly_robust import (
    weighted_doubly_robust as weighted_doubly_robust,
)
from neorl_core.off_policy_evaluation._importance_sampling import (
    LoggedTrajectories as LoggedTrajectories,
)
from neorl_core.off_policy_evaluation._importance_sampling import (
    effective_sample_size as effective_sample_size,
)
from neorl_core.off_policy_evaluation._importance_sampling import wpdis as wpdis

__all__ = [
    "LoggedTrajectories",
    "effective_sample_size",
    "weighted_doubly_robust",
    "wpdis",
]
