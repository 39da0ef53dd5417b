"""The audit log of a loop: append-only, hash-chained, and bit-for-bit reproducible."""

from neorl_deploy.audit._chain import AuditError as AuditError
from neorl_deploy.audit._chain import Chain as Chain
from neorl_deploy.audit._chain import records as records
from neorl_deploy.audit._chain import verify_chain as verify_chain
from neorl_deploy.audit._log import AuditLog as AuditLog
from neorl_deploy.audit._replay import DecisionReplay as DecisionReplay
from neorl_deploy.audit._replay import replay_decisions as replay_decisions

__all__ = [
    "AuditError",
    "AuditLog",
    "Chain",
    "DecisionReplay",
    "records",
    "replay_decisions",
    "verify_chain",
]
