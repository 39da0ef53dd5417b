"""The control loop around a runtime (extra ``jax``): tags, modes, faults and the audit record."""

from neorl_deploy.loop._block import BlockInputs as BlockInputs
from neorl_deploy.loop._block import BlockReason as BlockReason
from neorl_deploy.loop._block import BlockSettings as BlockSettings
from neorl_deploy.loop._block import BlockState as BlockState
from neorl_deploy.loop._block import block_page as block_page
from neorl_deploy.loop._block import block_scan as block_scan
from neorl_deploy.loop._board import Board as Board
from neorl_deploy.loop._check import EngineeringRange as EngineeringRange
from neorl_deploy.loop._check import Finding as Finding
from neorl_deploy.loop._check import check_record as check_record
from neorl_deploy.loop._check import check_tags as check_tags
from neorl_deploy.loop._check import unchecked as unchecked
from neorl_deploy.loop._control import ControlLoop as ControlLoop
from neorl_deploy.loop._cycle import Cycle as Cycle
from neorl_deploy.loop._cycle import audit_log as audit_log
from neorl_deploy.loop._cycle import recorder as recorder
from neorl_deploy.loop._inputs import Measurements as Measurements
from neorl_deploy.loop._inputs import judge_readings as judge_readings
from neorl_deploy.loop._locks import ActuatorLocks as ActuatorLocks
from neorl_deploy.loop._locks import loop_lock as loop_lock
from neorl_deploy.loop._modes import TARGETS as TARGETS
from neorl_deploy.loop._modes import TRANSITIONS as TRANSITIONS
from neorl_deploy.loop._modes import WRITING as WRITING
from neorl_deploy.loop._modes import Authority as Authority
from neorl_deploy.loop._modes import Mode as Mode
from neorl_deploy.loop._modes import ModeConditions as ModeConditions
from neorl_deploy.loop._modes import next_mode as next_mode
from neorl_deploy.loop._plant import Clock as Clock
from neorl_deploy.loop._plant import Instant as Instant
from neorl_deploy.loop._plant import Plant as Plant
from neorl_deploy.loop._plant import PlantError as PlantError
from neorl_deploy.loop._plant import Quality as Quality
from neorl_deploy.loop._plant import Reading as Reading
from neorl_deploy.loop._plant import SystemClock as SystemClock
from neorl_deploy.loop._plant import connect as connect
from neorl_deploy.loop._serve import HUNG_EXIT_CODE as HUNG_EXIT_CODE
from neorl_deploy.loop._serve import OrderBox as OrderBox
from neorl_deploy.loop._serve import Watchdog as Watchdog
from neorl_deploy.loop._serve import cycle_line as cycle_line
from neorl_deploy.loop._serve import drop_old_orders as drop_old_orders
from neorl_deploy.loop._serve import order as order
from neorl_deploy.loop._serve import serve as serve
from neorl_deploy.loop._staged_rollout import Count as Count
from neorl_deploy.loop._staged_rollout import Plan as Plan
from neorl_deploy.loop._staged_rollout import Stage as Stage
from neorl_deploy.loop._staged_rollout import StagedRollout as StagedRollout
from neorl_deploy.loop._staged_rollout import draft_plan as draft_plan
from neorl_deploy.loop._staged_rollout import probability_of_more as probability_of_more
from neorl_deploy.loop._staged_rollout import read_plan as read_plan
from neorl_deploy.loop._tags import Block as Block
from neorl_deploy.loop._tags import Input as Input
from neorl_deploy.loop._tags import LoopSettings as LoopSettings
from neorl_deploy.loop._tags import Output as Output
from neorl_deploy.loop._tags import TagMap as TagMap
from neorl_deploy.loop._tags import draft_tags as draft_tags
from neorl_deploy.loop._tags import read_tags as read_tags
from neorl_deploy.loop._tags import shared_tags as shared_tags
from neorl_deploy.loop._tags import tags_of as tags_of

__all__ = [
    "HUNG_EXIT_CODE",
    "TARGETS",
    "TRANSITIONS",
    "WRITING",
    "ActuatorLocks",
    "Authority",
    "Block",
    "BlockInputs",
    "BlockReason",
    "BlockSettings",
    "BlockState",
    "Board",
    "Clock",
    "ControlLoop",
    "Count",
    "Cycle",
    "EngineeringRange",
    "Finding",
    "Input",
    "Instant",
    "LoopSettings",
    "Measurements",
    "Mode",
    "ModeConditions",
    "OrderBox",
    "Output",
    "Plan",
    "Plant",
    "PlantError",
    "Quality",
    "Reading",
    "Stage",
    "StagedRollout",
    "SystemClock",
    "TagMap",
    "Watchdog",
    "audit_log",
    "block_page",
    "block_scan",
    "check_record",
    "check_tags",
    "connect",
    "cycle_line",
    "draft_plan",
    "draft_tags",
    "drop_old_orders",
    "judge_readings",
    "loop_lock",
    "next_mode",
    "order",
    "probability_of_more",
    "read_plan",
    "read_tags",
    "recorder",
    "serve",
    "shared_tags",
    "tags_of",
    "unchecked",
]
