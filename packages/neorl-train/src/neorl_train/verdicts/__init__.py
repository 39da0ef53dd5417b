"""The rule of deployment, its words, its file."""

from neorl_train.verdicts._rule import Verdict as Verdict

__all__ = [
    "Verdict",
]
