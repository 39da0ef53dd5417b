"""A control loop judged from its log: its health, what ails it, a model, and what to change."""

from neorl_agents.loops._cause import Cause as Cause
from neorl_agents.loops._cause import loop_cause as loop_cause
from neorl_agents.loops._controller import LoggedController as LoggedController
from neorl_agents.loops._controller import logged_controller as logged_controller
from neorl_agents.loops._faceplate_change import FaceplateChange as FaceplateChange
from neorl_agents.loops._faceplate_change import FaceplateRow as FaceplateRow
from neorl_agents.loops._faceplate_change import faceplate_change as faceplate_change
from neorl_agents.loops._faceplate_change import faceplate_rows as faceplate_rows
from neorl_agents.loops._faceplate_change import faceplate_sentence as faceplate_sentence
from neorl_agents.loops._gain_by_level import GainByLevel as GainByLevel
from neorl_agents.loops._health import LoopFigures as LoopFigures
from neorl_agents.loops._health import Stiction as Stiction
from neorl_agents.loops._health import Swing as Swing
from neorl_agents.loops._health import loop_figures as loop_figures
from neorl_agents.loops._health import shared_swings as shared_swings
from neorl_agents.loops._judgement import LoopJudgement as LoopJudgement
from neorl_agents.loops._judgement import MarginTable as MarginTable
from neorl_agents.loops._judgement import StepGrid as StepGrid
from neorl_agents.loops._judgement import judged_loops as judged_loops
from neorl_agents.loops._judgement import loops_on_members as loops_on_members
from neorl_agents.loops._judgement import margin_table as margin_table
from neorl_agents.loops._judgement import step_grid as step_grid
from neorl_agents.loops._model import Interval as Interval
from neorl_agents.loops._model import LoopModel as LoopModel
from neorl_agents.loops._model import loop_model as loop_model
from neorl_agents.loops._periods import PeriodComparison as PeriodComparison
from neorl_agents.loops._periods import PeriodFigures as PeriodFigures
from neorl_agents.loops._periods import PeriodIndex as PeriodIndex
from neorl_agents.loops._periods import compare_periods as compare_periods
from neorl_agents.loops._periods import days_for as days_for
from neorl_agents.loops._proposal import Proposal as Proposal
from neorl_agents.loops._proposal import TuningPoint as TuningPoint
from neorl_agents.loops._proposal import TuningSettings as TuningSettings
from neorl_agents.loops._proposal import halfway as halfway
from neorl_agents.loops._proposal import propose as propose
from neorl_agents.loops._record import LoopRecord as LoopRecord
from neorl_agents.loops._record import without_spikes as without_spikes
from neorl_agents.loops._replay import Replay as Replay
from neorl_agents.loops._replay import ReplayFigures as ReplayFigures
from neorl_agents.loops._replay import replay as replay
from neorl_agents.loops._replay import replayed_loops as replayed_loops
from neorl_agents.loops._report import Figure as Figure
from neorl_agents.loops._report import LoopReport as LoopReport
from neorl_agents.loops._report import health_figures as health_figures
from neorl_agents.loops._report import loop_reports as loop_reports
from neorl_agents.loops._valve import ValveTest as ValveTest
from neorl_agents.loops._valve import valve_test as valve_test

__all__ = [
    "Cause",
    "FaceplateChange",
    "FaceplateRow",
    "Figure",
    "GainByLevel",
    "Interval",
    "LoggedController",
    "LoopFigures",
    "LoopJudgement",
    "LoopModel",
    "LoopRecord",
    "LoopReport",
    "MarginTable",
    "PeriodComparison",
    "PeriodFigures",
    "PeriodIndex",
    "Proposal",
    "Replay",
    "ReplayFigures",
    "StepGrid",
    "Stiction",
    "Swing",
    "TuningPoint",
    "TuningSettings",
    "ValveTest",
    "compare_periods",
    "days_for",
    "faceplate_change",
    "faceplate_rows",
    "faceplate_sentence",
    "halfway",
    "health_figures",
    "judged_loops",
    "logged_controller",
    "loop_cause",
    "loop_figures",
    "loop_model",
    "loop_reports",
    "loops_on_members",
    "margin_table",
    "propose",
    "replay",
    "replayed_loops",
    "shared_swings",
    "step_grid",
    "valve_test",
    "without_spikes",
]
