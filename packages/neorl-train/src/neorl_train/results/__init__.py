"""The tables that an evaluation found, as data."""

from neorl_train.results._file import read_evaluation as read_evaluation
from neorl_train.results._file import read_verdict as read_verdict
from neorl_train.results._file import write_evaluation as write_evaluation
from neorl_train.results._results import Evaluation as Evaluation
from neorl_train.results._tables import ResultTables as ResultTables

__all__ = [
    "Evaluation",
    "ResultTables",
    "read_evaluation",
    "read_verdict",
    "write_evaluation",
]
