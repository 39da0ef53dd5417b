"""Monitors with thresholds, and statistics of violations."""

from neorl_safety.monitoring._learned import CriticMonitor as CriticMonitor
from neorl_safety.monitoring._learned import EnsembleMonitor as EnsembleMonitor
from neorl_safety.monitoring._learned import Proposer as Proposer
from neorl_safety.monitoring._learned import policy_ensemble as policy_ensemble
from neorl_safety.monitoring._monitor import Monitor as Monitor
from neorl_safety.monitoring._monitor import MonitorInput as MonitorInput
from neorl_safety.monitoring._monitor import Score as Score
from neorl_safety.monitoring._monitor import alarms_per_day as alarms_per_day
from neorl_safety.monitoring._monitor import calibrate as calibrate
from neorl_safety.monitoring._monitor import episode_alarms as episode_alarms
from neorl_safety.monitoring._monitor import episode_scores as episode_scores
from neorl_safety.monitoring._monitor import operation_scores as operation_scores
from neorl_safety.monitoring._named_monitor import NamedMonitor as NamedMonitor
from neorl_safety.monitoring._named_monitor import describe_monitor as describe_monitor
from neorl_safety.monitoring._named_monitor import monitors_from_dict as monitors_from_dict
from neorl_safety.monitoring._named_monitor import monitors_to_dict as monitors_to_dict
from neorl_safety.monitoring._novelty import DriftMonitor as DriftMonitor
from neorl_safety.monitoring._novelty import MahalanobisMonitor as MahalanobisMonitor
from neorl_safety.monitoring._novelty import NeighbourMonitor as NeighbourMonitor
from neorl_safety.monitoring._novelty import drift_monitor as drift_monitor
from neorl_safety.monitoring._novelty import mahalanobis_monitor as mahalanobis_monitor
from neorl_safety.monitoring._novelty import neighbour_monitor as neighbour_monitor
from neorl_safety.monitoring._sensors import FrozenCarry as FrozenCarry
from neorl_safety.monitoring._sensors import FrozenMonitor as FrozenMonitor
from neorl_safety.monitoring._sensors import RangeMonitor as RangeMonitor
from neorl_safety.monitoring._sensors import frozen_monitor as frozen_monitor
from neorl_safety.monitoring._sensors import range_monitor as range_monitor
from neorl_safety.monitoring._stl import Formula as Formula
from neorl_safety.monitoring._stl import Robustness as Robustness
from neorl_safety.monitoring._stl import above as above
from neorl_safety.monitoring._stl import always as always
from neorl_safety.monitoring._stl import below as below
from neorl_safety.monitoring._stl import conjunction as conjunction
from neorl_safety.monitoring._stl import disjunction as disjunction
from neorl_safety.monitoring._stl import eventually as eventually
from neorl_safety.monitoring._stl import formula_text as formula_text
from neorl_safety.monitoring._stl import negation as negation
from neorl_safety.monitoring._stl import read_formula as read_formula
from neorl_safety.monitoring._stl import robustness as robustness
from neorl_safety.monitoring._stl import until as until
from neorl_safety.monitoring._stl_monitor import FormulaCarry as FormulaCarry
from neorl_safety.monitoring._stl_monitor import FormulaMonitor as FormulaMonitor
from neorl_safety.monitoring._stl_monitor import formula_monitor as formula_monitor
from neorl_safety.monitoring._violations import CheckedConstraint as CheckedConstraint
from neorl_safety.monitoring._violations import Depth as Depth
from neorl_safety.monitoring._violations import ViolationStatistics as ViolationStatistics
from neorl_safety.monitoring._violations import checked_constraints as checked_constraints
from neorl_safety.monitoring._violations import constraint_excess as constraint_excess
from neorl_safety.monitoring._violations import seconds_held as seconds_held
from neorl_safety.monitoring._violations import violation_depth as violation_depth
from neorl_safety.monitoring._violations import violation_statistics as violation_statistics

__all__ = [
    "CheckedConstraint",
    "CriticMonitor",
    "Depth",
    "DriftMonitor",
    "EnsembleMonitor",
    "Formula",
    "FormulaCarry",
    "FormulaMonitor",
    "FrozenCarry",
    "FrozenMonitor",
    "MahalanobisMonitor",
    "Monitor",
    "MonitorInput",
    "NamedMonitor",
    "NeighbourMonitor",
    "Proposer",
    "RangeMonitor",
    "Robustness",
    "Score",
    "ViolationStatistics",
    "above",
    "alarms_per_day",
    "always",
    "below",
    "calibrate",
    "checked_constraints",
    "conjunction",
    "constraint_excess",
    "describe_monitor",
    "disjunction",
    "drift_monitor",
    "episode_alarms",
    "episode_scores",
    "eventually",
    "formula_monitor",
    "formula_text",
    "frozen_monitor",
    "mahalanobis_monitor",
    "monitors_from_dict",
    "monitors_to_dict",
    "negation",
    "neighbour_monitor",
    "operation_scores",
    "policy_ensemble",
    "range_monitor",
    "read_formula",
    "robustness",
    "seconds_held",
    "until",
    "violation_depth",
    "violation_statistics",
]
