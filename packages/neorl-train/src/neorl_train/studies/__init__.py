"""Studies of several runs: comparisons, benchmarks, grids of settings and searches over them."""

from neorl_train.studies._benchmark import Benchmark as Benchmark
from neorl_train.studies._benchmark import BenchmarkRow as BenchmarkRow
from neorl_train.studies._benchmark import Learning as Learning
from neorl_train.studies._benchmark import Overall as Overall
from neorl_train.studies._benchmark_run import BenchmarkPlan as BenchmarkPlan
from neorl_train.studies._benchmark_run import benchmark_plan as benchmark_plan
from neorl_train.studies._benchmark_run import carry_out_benchmark as carry_out_benchmark
from neorl_train.studies._benchmark_run import log_baselines as log_baselines
from neorl_train.studies._benchmark_run import plant_baselines as plant_baselines
from neorl_train.studies._benchmark_run import read_benchmark as read_benchmark
from neorl_train.studies._comparison import ComparedRow as ComparedRow
from neorl_train.studies._comparison import Comparison as Comparison
from neorl_train.studies._comparison import LearnerAggregate as LearnerAggregate
from neorl_train.studies._comparison import aggregate as aggregate
from neorl_train.studies._comparison import compare_runs as compare_runs
from neorl_train.studies._files import write_benchmark as write_benchmark
from neorl_train.studies._files import write_comparison as write_comparison
from neorl_train.studies._fresh_starts import evaluate_again as evaluate_again
from neorl_train.studies._sweep import read_sweep as read_sweep
from neorl_train.studies._tables import benchmark_text as benchmark_text
from neorl_train.studies._tables import benchmark_to_json as benchmark_to_json
from neorl_train.studies._tables import comparison_text as comparison_text
from neorl_train.studies._tables import comparison_to_json as comparison_to_json

__all__ = [
    "Benchmark",
    "BenchmarkPlan",
    "BenchmarkRow",
    "ComparedRow",
    "Comparison",
    "LearnerAggregate",
    "Learning",
    "Overall",
    "aggregate",
    "benchmark_plan",
    "benchmark_text",
    "benchmark_to_json",
    "carry_out_benchmark",
    "compare_runs",
    "comparison_text",
    "comparison_to_json",
    "evaluate_again",
    "log_baselines",
    "plant_baselines",
    "read_benchmark",
    "read_sweep",
    "write_benchmark",
    "write_comparison",
]
