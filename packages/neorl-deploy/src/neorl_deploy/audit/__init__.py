"""The audit log of a loop: append-only, hash-chained, and bit-for-bit reproducible."""

from neorl_deploy.audit._chain import AuditError as AuditError
from neorl_deploy.audit._chain import Chain as Chain
from neorl_deploy.audit._chain import records as records
from neorl_deploy.audit._chain import verified as verified
from neorl_deploy.audit._log import AuditLog as AuditLog
from neorl_deploy.audit._replay import Replayed as Replayed
from neorl_deploy.audit._replay import replayed as replayed

__all__ = [
    "AuditError",
    "AuditLog",
    "Chain",
    "Replayed",
    "records",
    "replayed",
    "verified",
]
