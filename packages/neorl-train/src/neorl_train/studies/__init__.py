"""More than one run: comparisons, grids of settings and searches over them."""

from neorl_train.studies._aggregates import LearnerAggregate as LearnerAggregate
from neorl_train.studies._aggregates import aggregate as aggregate
from neorl_train.studies._cells import read_sweep as read_sweep
from neorl_train.studies._comparison import ComparedRow as ComparedRow
from neorl_train.studies._comparison import Comparison as Comparison
from neorl_train.studies._comparison import compare_runs as compare_runs
from neorl_train.studies._tables import comparison_text as comparison_text
from neorl_train.studies._tables import comparison_to_json as comparison_to_json
from neorl_train.studies._tables import write_comparison as write_comparison

__all__ = [
    "ComparedRow",
    "Comparison",
    "LearnerAggregate",
    "aggregate",
    "compare_runs",
    "comparison_text",
    "comparison_to_json",
    "read_sweep",
    "write_comparison",
]
