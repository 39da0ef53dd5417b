"""What a namespace answers when it is asked for a name that it does not have."""

import difflib
from collections.abc import Callable, Sequence
from typing import NoReturn

ELSEWHERE = {
    "gae": "returns.generalised_advantages",
    "generalized_advantages": "returns.generalised_advantages",
    "truncated_generalized_advantage_estimation": "returns.generalised_advantages",
    "lambda_returns": "returns.td_lambda_returns",
    "n_step_bootstrapped_returns": "returns.n_step_returns",
    "l2_loss": "losses.squared_loss",
    "mse_loss": "losses.squared_loss",
    "quantile_regression_loss": "losses.quantile_huber_loss",
    "clipped_surrogate_pg_loss": "losses.ppo_clipped_loss",
    "MultivariateNormalDiag": "distributions.diagonal_gaussian_sample",
    "Normal": "distributions.diagonal_gaussian_sample",
    "Categorical": "distributions.categorical_log_prob",
    "aggregate_iqm": "statistics.interquartile_mean",
    "iqm": "statistics.interquartile_mean",
    "aggregate_median": "statistics.median_task_mean",
    "aggregate_optimality_gap": "statistics.optimality_gap",
    "get_interval_estimates": "statistics.stratified_bootstrap_interval",
    "trim_mean": "statistics.interquartile_mean",
    "wilcoxon": "statistics.wilcoxon_test",
    "incremental_update": "targets.polyak",
    "soft_update": "targets.polyak",
}
"""Names of other libraries for the same thing, as the page *Coming from* has them."""
SIMILAR = 0.6


def missing_name(namespace: str, names: Sequence[str]) -> Callable[[str], NoReturn]:
    """The function ``__getattr__`` of a namespace (PEP 562), which suggests the nearest name.

    It is assigned out of sight of type checkers, which would otherwise accept any name.

    Args:
        namespace: Full name of the module, its ``__name__``.
        names: Its ``__all__``.
    """

    def attribute(name: str) -> NoReturn:
        hint = f"dir({namespace}) lists its names"
        if name in ELSEWHERE:
            hint = f"here it is neorl_core.{ELSEWHERE[name]}"
        elif near := difflib.get_close_matches(name, names, n=1, cutoff=SIMILAR):
            hint = f"did you mean {near[0]!r}?"
        raise AttributeError(f"module {namespace!r} has no attribute {name!r}; {hint}")

    return attribute
