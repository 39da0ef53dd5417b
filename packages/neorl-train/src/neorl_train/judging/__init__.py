"""Judging candidates: episodes, result tables, the rule of the verdict, safety statistics."""

from typing import TYPE_CHECKING

from neorl_core.infrastructure import lazy_names

if TYPE_CHECKING:
    from neorl_train.judging._evaluate import NEORL2_RETURNS as NEORL2_RETURNS
    from neorl_train.judging._evaluate import plant_constraints as plant_constraints
    from neorl_train.judging._loop_change import LogFacts as LogFacts
    from neorl_train.judging._loop_change import LoopChange as LoopChange
    from neorl_train.judging._loop_change import read_changes as read_changes
    from neorl_train.judging._loop_change import write_changes as write_changes
    from neorl_train.judging._loop_evidence import loop_change as loop_change
    from neorl_train.judging._loop_trial import one_at_a_time as one_at_a_time
    from neorl_train.judging._loop_trial import touched_by_loop as touched_by_loop
    from neorl_train.judging._loop_trial import turn_length as turn_length
    from neorl_train.judging._results import ActionFit as ActionFit
    from neorl_train.judging._results import Band as Band
    from neorl_train.judging._results import ChannelExcitation as ChannelExcitation
    from neorl_train.judging._results import Episodes as Episodes
    from neorl_train.judging._results import Evaluation as Evaluation
    from neorl_train.judging._results import LogDescription as LogDescription
    from neorl_train.judging._results import LogScore as LogScore
    from neorl_train.judging._results import PolicyResult as PolicyResult
    from neorl_train.judging._results import Stretch as Stretch
    from neorl_train.judging._results import Trace as Trace
    from neorl_train.judging._results import line_warnings as line_warnings
    from neorl_train.judging._results import read_evaluation as read_evaluation
    from neorl_train.judging._results import to_plain as to_plain
    from neorl_train.judging._results import write_evaluation as write_evaluation
    from neorl_train.judging._rollouts import EpisodeRows as EpisodeRows
    from neorl_train.judging._rollouts import SwitchedPolicy as SwitchedPolicy
    from neorl_train.judging._rollouts import episodes_of as episodes_of
    from neorl_train.judging._rollouts import join_episodes as join_episodes
    from neorl_train.judging._rollouts import paired_starts as paired_starts
    from neorl_train.judging._rollouts import recorded_episodes as recorded_episodes
    from neorl_train.judging._rollouts import rollouts as rollouts
    from neorl_train.judging._rollouts import rollouts_in_chunks as rollouts_in_chunks
    from neorl_train.judging._rollouts import with_one_structure as with_one_structure
    from neorl_train.judging._rule import MAX_REPLAY_ERROR as MAX_REPLAY_ERROR
    from neorl_train.judging._rule import LogPrediction as LogPrediction
    from neorl_train.judging._rule import OtherEstimate as OtherEstimate
    from neorl_train.judging._rule import ReplayCheck as ReplayCheck
    from neorl_train.judging._rule import trial_verdict as trial_verdict
    from neorl_train.judging._safety import assess_on_log as assess_on_log
    from neorl_train.judging._safety import assess_on_plant as assess_on_plant
    from neorl_train.judging._safety_findings import Assessment as Assessment
    from neorl_train.judging._sentences import STOP_LEVEL as STOP_LEVEL
    from neorl_train.judging._sentences import BrokenEpisodes as BrokenEpisodes
    from neorl_train.judging._sentences import stopping_counts as stopping_counts
    from neorl_train.judging._sentences import trial_plan as trial_plan
    from neorl_train.judging._shadow import action_fits as action_fits
    from neorl_train.judging._shadow import classical_imitators as classical_imitators
    from neorl_train.judging._summary import crossed_estimate as crossed_estimate
    from neorl_train.judging._summary import fraction_estimates as fraction_estimates
    from neorl_train.judging._summary import mean_estimates as mean_estimates
    from neorl_train.judging._summary import paired_comparison as paired_comparison
    from neorl_train.judging._summary import policy_rows as policy_rows
    from neorl_train.judging._summary import pooled_rows as pooled_rows
    from neorl_train.judging._tables import AmountCell as AmountCell
    from neorl_train.judging._tables import CostCell as CostCell
    from neorl_train.judging._tables import EnvironmentScore as EnvironmentScore
    from neorl_train.judging._tables import Estimate as Estimate
    from neorl_train.judging._tables import PolicyRow as PolicyRow
    from neorl_train.judging._tables import PooledCost as PooledCost
    from neorl_train.judging._tables import PooledRow as PooledRow
    from neorl_train.judging._tables import ResultTables as ResultTables
    from neorl_train.judging._training_results import Collected as Collected
    from neorl_train.judging._training_results import FineTuned as FineTuned
    from neorl_train.judging._training_results import FineTuning as FineTuning
    from neorl_train.judging._training_results import read_fine_tuning as read_fine_tuning
    from neorl_train.judging._training_results import training_signs as training_signs
    from neorl_train.judging._training_results import unconverged as unconverged
    from neorl_train.judging._training_results import without_safe_actions as without_safe_actions
    from neorl_train.judging._training_results import write_fine_tuning as write_fine_tuning
    from neorl_train.judging._validation import PolicyValidation as PolicyValidation
    from neorl_train.judging._verdict import Clause as Clause
    from neorl_train.judging._verdict import Verdict as Verdict
    from neorl_train.judging._verdict import closing as closing
    from neorl_train.judging._verdict import parts as parts
    from neorl_train.judging._verdict import read_verdict as read_verdict
    from neorl_train.judging._verdict import write_verdict as write_verdict
    from neorl_train.judging._wording import decimals as decimals
    from neorl_train.judging._wording import duration_words as duration_words
    from neorl_train.judging._wording import table_text as table_text
    from neorl_train.judging._wording import with_interval as with_interval
    from neorl_train.judging._wording import with_sign as with_sign

__all__ = [
    "MAX_REPLAY_ERROR",
    "NEORL2_RETURNS",
    "STOP_LEVEL",
    "ActionFit",
    "AmountCell",
    "Assessment",
    "Band",
    "BrokenEpisodes",
    "ChannelExcitation",
    "Clause",
    "Collected",
    "CostCell",
    "EnvironmentScore",
    "EpisodeRows",
    "Episodes",
    "Estimate",
    "Evaluation",
    "FineTuned",
    "FineTuning",
    "LogDescription",
    "LogFacts",
    "LogPrediction",
    "LogScore",
    "LoopChange",
    "OtherEstimate",
    "PolicyResult",
    "PolicyRow",
    "PolicyValidation",
    "PooledCost",
    "PooledRow",
    "ReplayCheck",
    "ResultTables",
    "Stretch",
    "SwitchedPolicy",
    "Trace",
    "Verdict",
    "action_fits",
    "assess_on_log",
    "assess_on_plant",
    "classical_imitators",
    "closing",
    "crossed_estimate",
    "decimals",
    "duration_words",
    "episodes_of",
    "fraction_estimates",
    "join_episodes",
    "line_warnings",
    "loop_change",
    "mean_estimates",
    "one_at_a_time",
    "paired_comparison",
    "paired_starts",
    "parts",
    "plant_constraints",
    "policy_rows",
    "pooled_rows",
    "read_changes",
    "read_evaluation",
    "read_fine_tuning",
    "read_verdict",
    "recorded_episodes",
    "rollouts",
    "rollouts_in_chunks",
    "stopping_counts",
    "table_text",
    "to_plain",
    "touched_by_loop",
    "training_signs",
    "trial_plan",
    "trial_verdict",
    "turn_length",
    "unconverged",
    "with_interval",
    "with_one_structure",
    "with_sign",
    "without_safe_actions",
    "write_changes",
    "write_evaluation",
    "write_fine_tuning",
    "write_verdict",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__)
