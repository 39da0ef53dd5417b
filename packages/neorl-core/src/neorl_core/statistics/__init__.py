"""Intervals, tests, ranks, tail risk, scores, and quality of predictions."""

from neorl_core._internal.missing_names import missing_name
from neorl_core.statistics._correlated import CorrelatedMean as CorrelatedMean
from neorl_core.statistics._correlated import correlated_mean as correlated_mean
from neorl_core.statistics._data_statistics import merge_statistics as merge_statistics
from neorl_core.statistics._data_statistics import range_statistics as range_statistics
from neorl_core.statistics._intervals import DEFAULT_LEVEL as DEFAULT_LEVEL
from neorl_core.statistics._intervals import Interval as Interval
from neorl_core.statistics._intervals import bootstrap_interval as bootstrap_interval
from neorl_core.statistics._intervals import crossed_interval as crossed_interval
from neorl_core.statistics._intervals import (
    paired_difference_interval as paired_difference_interval,
)
from neorl_core.statistics._intervals import student_interval as student_interval
from neorl_core.statistics._predictions import area_under_roc as area_under_roc
from neorl_core.statistics._predictions import brier_skill as brier_skill
from neorl_core.statistics._predictions import calibration_error as calibration_error
from neorl_core.statistics._predictions import conformal_quantile as conformal_quantile
from neorl_core.statistics._predictions import conformal_sample_size as conformal_sample_size
from neorl_core.statistics._predictions import (
    weighted_conformal_quantile as weighted_conformal_quantile,
)
from neorl_core.statistics._ranks import rank_correlation as rank_correlation
from neorl_core.statistics._scores import conditional_value_at_risk as conditional_value_at_risk
from neorl_core.statistics._scores import interquartile_mean as interquartile_mean
from neorl_core.statistics._scores import median_task_mean as median_task_mean
from neorl_core.statistics._scores import normalised_score as normalised_score
from neorl_core.statistics._scores import optimality_gap as optimality_gap
from neorl_core.statistics._scores import performance_profile as performance_profile
from neorl_core.statistics._scores import (
    probability_of_improvement as probability_of_improvement,
)
from neorl_core.statistics._scores import (
    stratified_bootstrap_interval as stratified_bootstrap_interval,
)
from neorl_core.statistics._tests import PairedTest as PairedTest
from neorl_core.statistics._tests import holm as holm
from neorl_core.statistics._tests import wilcoxon_test as wilcoxon_test

__all__ = [
    "DEFAULT_LEVEL",
    "CorrelatedMean",
    "Interval",
    "PairedTest",
    "area_under_roc",
    "bootstrap_interval",
    "brier_skill",
    "calibration_error",
    "conditional_value_at_risk",
    "conformal_quantile",
    "conformal_sample_size",
    "correlated_mean",
    "crossed_interval",
    "holm",
    "interquartile_mean",
    "median_task_mean",
    "merge_statistics",
    "normalised_score",
    "optimality_gap",
    "paired_difference_interval",
    "performance_profile",
    "probability_of_improvement",
    "range_statistics",
    "rank_correlation",
    "stratified_bootstrap_interval",
    "student_interval",
    "weighted_conformal_quantile",
    "wilcoxon_test",
]
globals()["__getattr__"] = missing_name(__name__, __all__)
