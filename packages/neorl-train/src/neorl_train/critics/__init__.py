"""Safety critics and ensembles of a log, with the thresholds of their monitors."""

from neorl_train.critics._fit import CriticOptions as CriticOptions
from neorl_train.critics._fit import Critics as Critics
from neorl_train.critics._fit import TrainingHooks as TrainingHooks
from neorl_train.critics._fit import fit_critics as fit_critics
from neorl_train.critics._text import critics_text as critics_text

__all__ = [
    "CriticOptions",
    "Critics",
    "TrainingHooks",
    "critics_text",
    "fit_critics",
]
