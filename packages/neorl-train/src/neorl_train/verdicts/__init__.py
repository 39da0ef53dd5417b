"""The rule of deployment, its wording and its file."""

from neorl_train.verdicts._file import read_verdict as read_verdict
from neorl_train.verdicts._file import write_verdict as write_verdict
from neorl_train.verdicts._trial import LogPrediction as LogPrediction
from neorl_train.verdicts._trial import OtherEstimate as OtherEstimate
from neorl_train.verdicts._trial import trial_verdict as trial_verdict
from neorl_train.verdicts._verdict import Clause as Clause
from neorl_train.verdicts._verdict import Verdict as Verdict

__all__ = [
    "Clause",
    "LogPrediction",
    "OtherEstimate",
    "Verdict",
    "read_verdict",
    "trial_verdict",
    "write_verdict",
]
