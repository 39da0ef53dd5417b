"""Intervals, tests, ranks, moments, tail risk, scores, and quality of predictions."""

from neorl_core.statistics._block_bootstrap import (
    block_bootstrap_interval as block_bootstrap_interval,
)
from neorl_core.statistics._block_bootstrap import (
    block_bootstrap_replicates as block_bootstrap_replicates,
)
from neorl_core.statistics._bootstrap import bootstrap_interval as bootstrap_interval
from neorl_core.statistics._bootstrap import bootstrap_replicates as bootstrap_replicates
from neorl_core.statistics._concentration import (
    empirical_bernstein_interval as empirical_bernstein_interval,
)
from neorl_core.statistics._concentration import hcope_lower_bound as hcope_lower_bound
from neorl_core.statistics._concentration import hcope_threshold as hcope_threshold
from neorl_core.statistics._concentration import hoeffding_interval as hoeffding_interval
from neorl_core.statistics._conformal import conformal_quantile as conformal_quantile
from neorl_core.statistics._conformal import conformal_sample_size as conformal_sample_size
from neorl_core.statistics._conformal import (
    weighted_conformal_quantile as weighted_conformal_quantile,
)
from neorl_core.statistics._crossed_interval import crossed_interval as crossed_interval
from neorl_core.statistics._data_statistics import merge_statistics as merge_statistics
from neorl_core.statistics._data_statistics import range_statistics as range_statistics
from neorl_core.statistics._intervals import DEFAULT_LEVEL as DEFAULT_LEVEL
from neorl_core.statistics._intervals import Interval as Interval
from neorl_core.statistics._intervals import (
    paired_difference_interval as paired_difference_interval,
)
from neorl_core.statistics._intervals import student_interval as student_interval
from neorl_core.statistics._moments import Moments as Moments
from neorl_core.statistics._moments import empty_moments as empty_moments
from neorl_core.statistics._moments import merge_moments as merge_moments
from neorl_core.statistics._moments import sample_moments as sample_moments
from neorl_core.statistics._moments import update_moments as update_moments
from neorl_core.statistics._moments import variance as variance
from neorl_core.statistics._multiple_tests import benjamini_hochberg as benjamini_hochberg
from neorl_core.statistics._multiple_tests import benjamini_yekutieli as benjamini_yekutieli
from neorl_core.statistics._multiple_tests import holm as holm
from neorl_core.statistics._normalised_score import normalised_score as normalised_score
from neorl_core.statistics._paired_tests import PairedTest as PairedTest
from neorl_core.statistics._paired_tests import paired_t_test as paired_t_test
from neorl_core.statistics._paired_tests import sign_flip_test as sign_flip_test
from neorl_core.statistics._paired_tests import wilcoxon_test as wilcoxon_test
from neorl_core.statistics._predictions import area_under_roc as area_under_roc
from neorl_core.statistics._predictions import brier_skill as brier_skill
from neorl_core.statistics._predictions import calibration_error as calibration_error
from neorl_core.statistics._proportions import clopper_pearson_interval as clopper_pearson_interval
from neorl_core.statistics._proportions import wilson_interval as wilson_interval
from neorl_core.statistics._ranks import rank_correlation as rank_correlation
from neorl_core.statistics._ranks import regret_at_k as regret_at_k
from neorl_core.statistics._reward_normaliser import RewardNormaliser as RewardNormaliser
from neorl_core.statistics._reward_normaliser import normalise_reward as normalise_reward
from neorl_core.statistics._reward_normaliser import reward_normaliser as reward_normaliser
from neorl_core.statistics._score_aggregates import interquartile_mean as interquartile_mean
from neorl_core.statistics._score_aggregates import median_task_mean as median_task_mean
from neorl_core.statistics._score_aggregates import optimality_gap as optimality_gap
from neorl_core.statistics._score_aggregates import performance_profile as performance_profile
from neorl_core.statistics._score_aggregates import (
    probability_of_improvement as probability_of_improvement,
)
from neorl_core.statistics._score_aggregates import (
    stratified_bootstrap_interval as stratified_bootstrap_interval,
)
from neorl_core.statistics._tail_risk import conditional_value_at_risk as conditional_value_at_risk
from neorl_core.statistics._tail_risk import weighted_quantile as weighted_quantile

__all__ = [
    "DEFAULT_LEVEL",
    "Interval",
    "Moments",
    "PairedTest",
    "RewardNormaliser",
    "area_under_roc",
    "benjamini_hochberg",
    "benjamini_yekutieli",
    "block_bootstrap_interval",
    "block_bootstrap_replicates",
    "bootstrap_interval",
    "bootstrap_replicates",
    "brier_skill",
    "calibration_error",
    "clopper_pearson_interval",
    "conditional_value_at_risk",
    "conformal_quantile",
    "conformal_sample_size",
    "crossed_interval",
    "empirical_bernstein_interval",
    "empty_moments",
    "hcope_lower_bound",
    "hcope_threshold",
    "hoeffding_interval",
    "holm",
    "interquartile_mean",
    "median_task_mean",
    "merge_moments",
    "merge_statistics",
    "normalise_reward",
    "normalised_score",
    "optimality_gap",
    "paired_difference_interval",
    "paired_t_test",
    "performance_profile",
    "probability_of_improvement",
    "range_statistics",
    "rank_correlation",
    "regret_at_k",
    "reward_normaliser",
    "sample_moments",
    "sign_flip_test",
    "stratified_bootstrap_interval",
    "student_interval",
    "update_moments",
    "variance",
    "weighted_conformal_quantile",
    "weighted_quantile",
    "wilcoxon_test",
    "wilson_interval",
]
