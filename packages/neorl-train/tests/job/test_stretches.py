"""How a log is cut into the stretches that set the thresholds of monitors."""

import numpy as np
import pytest

from neorl_safety.monitoring import NamedMonitor, describe_monitor, drift_monitor
from neorl_train._job.monitors import SHORTEST_STRETCH, stretch_of


@pytest.mark.parametrize("seed", range(2))
def test_stretches_are_the_longest_of_which_the_episodes_hold_enough(seed):
    rng = np.random.default_rng(seed)
    for _ in range(25):
        lengths = rng.integers(1, 30_000, rng.integers(1, 30))
        needed = int(rng.integers(1, 120))
        result = stretch_of(lengths, needed)
        if len(lengths) >= needed:
            assert result is None  # whole episodes are enough
            continue
        counts = {n: (lengths // n).sum() for n in range(SHORTEST_STRETCH, lengths.max() + 2)}
        enough = [n for n, count in counts.items() if count >= needed]
        assert result == (max(enough) if enough else None)


def test_a_watch_says_its_false_alarms_a_day(toy):
    spec = toy.Line().spec
    monitor = drift_monitor(np.random.default_rng(0).normal(size=(200, spec.n_obs)))
    words = describe_monitor(NamedMonitor("drift", monitor, 0.0125, 79, stretch=1800.0), spec)
    assert (
        "guaranteed: at most 0.6 false alarms in a day of operation like the 79 held-out stretches "
        "of 1800 s that set its threshold (in 1.25 % of them)"
    ) in words
    assert words.endswith("simulated plants raised up to 1.9 times as many alarms")
