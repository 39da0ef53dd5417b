"""Pure JAX mathematics for offline reinforcement learning and process control."""

from typing import TYPE_CHECKING

from neorl_core.infrastructure._lazy_names import lazy_names

if TYPE_CHECKING:
    from neorl_core import control as control
    from neorl_core import costs as costs
    from neorl_core import distributions as distributions
    from neorl_core import federated as federated
    from neorl_core import graphs as graphs
    from neorl_core import infrastructure as infrastructure
    from neorl_core import linear_systems as linear_systems
    from neorl_core import loops as loops
    from neorl_core import losses as losses
    from neorl_core import off_policy_evaluation as off_policy_evaluation
    from neorl_core import projections as projections
    from neorl_core import replay as replay
    from neorl_core import returns as returns
    from neorl_core import statistics as statistics
    from neorl_core import targets as targets
    from neorl_core._vocabulary.arrays import as_arrays as as_arrays
    from neorl_core._vocabulary.channels import Channel as Channel
    from neorl_core._vocabulary.channels import CostChannel as CostChannel
    from neorl_core._vocabulary.channels import CostPer as CostPer
    from neorl_core._vocabulary.channels import Spec as Spec
    from neorl_core._vocabulary.channels import highs as highs
    from neorl_core._vocabulary.channels import lows as lows
    from neorl_core._vocabulary.channels import spec_from_dict as spec_from_dict
    from neorl_core._vocabulary.channels import spec_to_dict as spec_to_dict
    from neorl_core._vocabulary.errors import InputError as InputError
    from neorl_core._vocabulary.experience import DataStatistics as DataStatistics
    from neorl_core._vocabulary.experience import FieldStatistics as FieldStatistics
    from neorl_core._vocabulary.experience import Step as Step
    from neorl_core._vocabulary.experience import Trajectory as Trajectory
    from neorl_core._vocabulary.experience import Transition as Transition
    from neorl_core._vocabulary.protocols import Environment as Environment
    from neorl_core._vocabulary.protocols import Policy as Policy
    from neorl_core._vocabulary.scaling import Affine as Affine
    from neorl_core._vocabulary.scaling import standardiser as standardiser
    from neorl_core._vocabulary.scaling import unit_interval as unit_interval

__all__ = [
    "Affine",
    "Channel",
    "CostChannel",
    "CostPer",
    "DataStatistics",
    "Environment",
    "FieldStatistics",
    "InputError",
    "Policy",
    "Spec",
    "Step",
    "Trajectory",
    "Transition",
    "as_arrays",
    "control",
    "costs",
    "distributions",
    "federated",
    "graphs",
    "highs",
    "infrastructure",
    "linear_systems",
    "loops",
    "losses",
    "lows",
    "off_policy_evaluation",
    "projections",
    "replay",
    "returns",
    "spec_from_dict",
    "spec_to_dict",
    "standardiser",
    "statistics",
    "targets",
    "unit_interval",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__)
