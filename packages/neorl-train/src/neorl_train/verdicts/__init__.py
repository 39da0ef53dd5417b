"""The rule of deployment, its words, its file."""

from neorl_train.verdicts._file import read_verdict as read_verdict
from neorl_train.verdicts._file import write_verdict as write_verdict
from neorl_train.verdicts._rule import Clause as Clause
from neorl_train.verdicts._rule import Verdict as Verdict

__all__ = [
    "Clause",
    "Verdict",
    "read_verdict",
    "write_verdict",
]
