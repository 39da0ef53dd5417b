"""The plan of a roll-out reads the length of the trial from the words of the verdict."""

import math
from types import SimpleNamespace
from typing import Any

from neorl_deploy.loop._rollout import EPISODES
from neorl_train.verdicts._trial import POWER, _plan


def test_the_words_of_the_verdict_say_how_many_episodes_a_trial_takes():
    found: Any = SimpleNamespace(
        prediction=SimpleNamespace(low=0.5), scale=1.5, incumbent="the PID in use"
    )
    tables: Any = SimpleNamespace(reward_unit="EUR")
    said = EPISODES.search(_plan(tables, found))
    assert said is not None
    assert int(said[1]) == math.ceil(2 * (POWER * 1.5 / 0.5) ** 2)
