"""A name that a namespace does not have: the nearest one, or ours for another library's."""

import importlib

import pytest

import neorl_core
from neorl_core import losses, returns


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        (losses, "expectil_loss", "did you mean 'expectile_loss'?"),
        (returns, "gae", "here it is neorl_core.returns.generalised_advantages"),
        (returns, "qqqq", "dir(neorl_core.returns) lists its names"),
        (neorl_core, "statistic", "did you mean 'statistics'?"),
    ],
)
def test_the_name_that_was_meant_is_said(module, name: str, words: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(module, name)
    assert words in str(error.value)


def test_every_namespace_answers_so() -> None:
    modules = [getattr(neorl_core, name) for name in neorl_core.__all__ if name.islower()]
    spaces = [one for one in modules if getattr(one, "__name__", "").startswith("neorl_core.")]
    spaces = [one for one in spaces if one is not neorl_core.infrastructure]
    assert len(spaces) > 10
    for space in spaces:
        near = space.__all__[0] + "q"
        with pytest.raises(AttributeError, match="did you mean"):
            getattr(space, near)


@pytest.mark.parametrize(
    "name",
    [
        "truncated_generalized_advantage_estimation", "lambda_returns", "l2_loss",
        "n_step_bootstrapped_returns", "quantile_regression_loss", "clipped_surrogate_pg_loss",
        "MultivariateNormalDiag", "Categorical", "aggregate_iqm", "aggregate_median",
        "get_interval_estimates", "trim_mean", "wilcoxon", "incremental_update",
    ],
)  # fmt: skip
def test_names_of_other_libraries_lead_to_names_that_exist(name: str) -> None:
    with pytest.raises(AttributeError, match="here it is") as error:
        getattr(neorl_core.costs, name)
    space, _, ours = str(error.value).rpartition("here it is ")[2].rpartition(".")
    assert ours in importlib.import_module(space).__all__
