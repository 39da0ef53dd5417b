"""The results of an evaluation, as data."""

from neorl_train.results._episodes import Episodes as Episodes
from neorl_train.results._episodes import Trace as Trace
from neorl_train.results._file import read_evaluation as read_evaluation
from neorl_train.results._file import write_evaluation as write_evaluation
from neorl_train.results._fine_tuning import Collected as Collected
from neorl_train.results._fine_tuning import FineTuned as FineTuned
from neorl_train.results._fine_tuning import FineTuning as FineTuning
from neorl_train.results._fine_tuning import read_fine_tuning as read_fine_tuning
from neorl_train.results._fine_tuning import write_fine_tuning as write_fine_tuning
from neorl_train.results._results import ActionFit as ActionFit
from neorl_train.results._results import Band as Band
from neorl_train.results._results import Evaluation as Evaluation
from neorl_train.results._results import Excitation as Excitation
from neorl_train.results._results import PolicyResult as PolicyResult
from neorl_train.results._results import Score as Score
from neorl_train.results._results import Source as Source
from neorl_train.results._stretches import Stretch as Stretch
from neorl_train.results._tables import AmountCell as AmountCell
from neorl_train.results._tables import CostCell as CostCell
from neorl_train.results._tables import Estimate as Estimate
from neorl_train.results._tables import PolicyRow as PolicyRow
from neorl_train.results._tables import PooledCost as PooledCost
from neorl_train.results._tables import PooledRow as PooledRow
from neorl_train.results._tables import ResultTables as ResultTables
from neorl_train.results._training_signs import training_signs as training_signs

__all__ = [
    "ActionFit",
    "AmountCell",
    "Band",
    "Collected",
    "CostCell",
    "Episodes",
    "Estimate",
    "Evaluation",
    "Excitation",
    "FineTuned",
    "FineTuning",
    "PolicyResult",
    "PolicyRow",
    "PooledCost",
    "PooledRow",
    "ResultTables",
    "Score",
    "Source",
    "Stretch",
    "Trace",
    "read_evaluation",
    "read_fine_tuning",
    "training_signs",
    "write_evaluation",
    "write_fine_tuning",
]
