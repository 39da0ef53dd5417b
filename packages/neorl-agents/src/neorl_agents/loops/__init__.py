"""A control loop judged from its log: its health, what ails it, a model, and what to change."""

from neorl_agents.loops._faceplate_change import FaceplateChange as FaceplateChange
from neorl_agents.loops._faceplate_change import FaceplateRow as FaceplateRow
from neorl_agents.loops._faceplate_change import faceplate_change as faceplate_change
from neorl_agents.loops._faceplate_change import faceplate_rows as faceplate_rows
from neorl_agents.loops._faceplate_change import faceplate_sentence as faceplate_sentence
from neorl_agents.loops._judgement import LoopJudgement as LoopJudgement
from neorl_agents.loops._judgement import MarginTable as MarginTable
from neorl_agents.loops._judgement import StepGrid as StepGrid
from neorl_agents.loops._judgement import judged_loops as judged_loops
from neorl_agents.loops._judgement import loops_on_members as loops_on_members
from neorl_agents.loops._judgement import margin_table as margin_table
from neorl_agents.loops._judgement import step_grid as step_grid
from neorl_agents.loops._model import Interval as Interval
from neorl_agents.loops._model import LoopModel as LoopModel
from neorl_agents.loops._periods import CorrelatedMean as CorrelatedMean
from neorl_agents.loops._periods import PeriodComparison as PeriodComparison
from neorl_agents.loops._periods import PeriodFigures as PeriodFigures
from neorl_agents.loops._periods import PeriodIndex as PeriodIndex
from neorl_agents.loops._periods import compare_periods as compare_periods
from neorl_agents.loops._periods import correlated_mean as correlated_mean
from neorl_agents.loops._periods import days_for as days_for
from neorl_agents.loops._proposal import Proposal as Proposal
from neorl_agents.loops._proposal import TuningPoint as TuningPoint
from neorl_agents.loops._proposal import TuningSettings as TuningSettings
from neorl_agents.loops._proposal import halfway as halfway
from neorl_agents.loops._proposal import judged_point as judged_point
from neorl_agents.loops._proposal import propose as propose
from neorl_agents.loops._record import LoopRecord as LoopRecord
from neorl_agents.loops._replay import Replay as Replay
from neorl_agents.loops._replay import ReplayFigures as ReplayFigures
from neorl_agents.loops._replay import replay as replay
from neorl_agents.loops._replay import replayed_loops as replayed_loops

__all__ = [
    "CorrelatedMean",
    "FaceplateChange",
    "FaceplateRow",
    "Interval",
    "LoopJudgement",
    "LoopModel",
    "LoopRecord",
    "MarginTable",
    "PeriodComparison",
    "PeriodFigures",
    "PeriodIndex",
    "Proposal",
    "Replay",
    "ReplayFigures",
    "StepGrid",
    "TuningPoint",
    "TuningSettings",
    "compare_periods",
    "correlated_mean",
    "days_for",
    "faceplate_change",
    "faceplate_rows",
    "faceplate_sentence",
    "halfway",
    "judged_loops",
    "judged_point",
    "loops_on_members",
    "margin_table",
    "propose",
    "replay",
    "replayed_loops",
    "step_grid",
]
