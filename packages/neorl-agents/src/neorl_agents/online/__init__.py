"""Fine-tuning offline learners online: their settings, the rows collected, balanced batches."""

from neorl_agents.online._balanced import balanced_batch as balanced_batch
from neorl_agents.online._balanced import rows_of_the_log as rows_of_the_log
from neorl_agents.online._replay import Replay as Replay
from neorl_agents.online._replay import replay_begin as replay_begin
from neorl_agents.online._replay import replay_push as replay_push
from neorl_agents.online._settings import OFFLINE as OFFLINE
from neorl_agents.online._settings import for_fine_tuning as for_fine_tuning
from neorl_agents.online._settings import require_fine_tunable as require_fine_tunable

__all__ = [
    "OFFLINE",
    "Replay",
    "balanced_batch",
    "for_fine_tuning",
    "replay_begin",
    "replay_push",
    "require_fine_tunable",
    "rows_of_the_log",
]
