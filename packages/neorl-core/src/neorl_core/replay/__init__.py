"""Selecting the past rows that a training step uses."""

from neorl_core.replay._episode_rows import episode_first_rows as episode_first_rows
from neorl_core.replay._episode_rows import window_rows as window_rows
from neorl_core.replay._priority_tree import PrioritySample as PrioritySample
from neorl_core.replay._priority_tree import PriorityTree as PriorityTree
from neorl_core.replay._priority_tree import priority_tree as priority_tree
from neorl_core.replay._priority_tree import priority_weights as priority_weights
from neorl_core.replay._priority_tree import sample_priorities as sample_priorities
from neorl_core.replay._priority_tree import set_priorities as set_priorities
from neorl_core.replay._ring_buffer import RingBuffer as RingBuffer
from neorl_core.replay._ring_buffer import ring_buffer as ring_buffer
from neorl_core.replay._ring_buffer import ring_order as ring_order
from neorl_core.replay._ring_buffer import ring_push as ring_push
from neorl_core.replay._ring_buffer import ring_sample as ring_sample
from neorl_core.replay._sampling import batch_indices as batch_indices

__all__ = [
    "PrioritySample",
    "PriorityTree",
    "RingBuffer",
    "batch_indices",
    "episode_first_rows",
    "priority_tree",
    "priority_weights",
    "ring_buffer",
    "ring_order",
    "ring_push",
    "ring_sample",
    "sample_priorities",
    "set_priorities",
    "window_rows",
]
