"""A policy and a plant in closed loop: single steps and whole episodes."""

from neorl_envs.closed_loop._rollout import Loop as Loop
from neorl_envs.closed_loop._rollout import LoopStep as LoopStep
from neorl_envs.closed_loop._rollout import Rollout as Rollout
from neorl_envs.closed_loop._rollout import Start as Start
from neorl_envs.closed_loop._rollout import closed_loop_step as closed_loop_step
from neorl_envs.closed_loop._rollout import drawn_start as drawn_start
from neorl_envs.closed_loop._rollout import rollout as rollout
from neorl_envs.closed_loop._rollout import transition_of as transition_of
from neorl_envs.closed_loop._rollout import where_over as where_over

__all__ = [
    "Loop",
    "LoopStep",
    "Rollout",
    "Start",
    "closed_loop_step",
    "drawn_start",
    "rollout",
    "transition_of",
    "where_over",
]
