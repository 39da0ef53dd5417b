"""Shadow mode on a log (extra ``replay``)."""

from neorl_deploy.shadow._from_audit import shadow_comparison as shadow_comparison
from neorl_deploy.shadow._log import Log as Log
from neorl_deploy.shadow._log import read_log as read_log
from neorl_deploy.shadow._replay import Replay as Replay
from neorl_deploy.shadow._replay import replay as replay
from neorl_deploy.shadow._replay import replay_path as replay_path
from neorl_deploy.shadow._replay import write_replay as write_replay

__all__ = [
    "Log",
    "Replay",
    "read_log",
    "replay",
    "replay_path",
    "shadow_comparison",
    "write_replay",
]
