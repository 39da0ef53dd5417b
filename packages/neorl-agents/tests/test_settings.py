"""Every class of the package that declares ranges refuses what is outside of them, by name."""

import dataclasses
import importlib
import inspect
import pkgutil

import pytest

import neorl_agents
from neorl_agents import ALGORITHMS
from neorl_agents.classical import LQG, MPC, BaseStockLevels, ImitatedPID, SmithPID, TunedPID
from neorl_agents.critics import EnsembleLearner, SafetyCriticLearner
from neorl_agents.learning import Log
from neorl_agents.models import DynamicsModel, FittedQEvaluation, ModelRollouts
from neorl_agents.populations import IQN
from neorl_core.infrastructure import range_of, require_settings
from neorl_core.testing import check_ranges

KINDS = {
    LQG: (),
    MPC: (),
    ImitatedPID: (),
    SmithPID: (),
    TunedPID: (),
    DynamicsModel: (),
    FittedQEvaluation: (),
    EnsembleLearner: ("outcome_mean", "outcome_scale"),
    SafetyCriticLearner: ("first_values",),
    IQN: (),
}
"""Classes with a method ``validate`` beside the learners, and their fields without a range."""


@pytest.mark.parametrize("kind", KINDS)
def test_values_out_of_range_are_refused_by_name(kind):
    check_ranges(kind(), lambda options: options.validate(), free=KINDS[kind])


OPTIONS = {
    BaseStockLevels: BaseStockLevels(),
    ModelRollouts: ModelRollouts(Log(), DynamicsModel()),
}
"""Objects that check their ranges when they are used."""


@pytest.mark.parametrize("options", OPTIONS.values(), ids=lambda options: type(options).__name__)
def test_values_out_of_range_are_refused_when_used(options):
    check_ranges(options, require_settings)


def test_no_class_with_ranges_is_left_out():
    tested = {*KINDS, *ALGORITHMS.values(), *OPTIONS}
    nested = {type(value) for kind in tested - {ModelRollouts} for value in vars(kind()).values()}
    bases = {base for kind in tested | nested for base in kind.__mro__}
    for module in pkgutil.walk_packages(neorl_agents.__path__, "neorl_agents."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            declares = dataclasses.is_dataclass(kind) and any(
                range_of(kind, field.name) for field in dataclasses.fields(kind)
            )
            assert not declares or kind in bases, kind
