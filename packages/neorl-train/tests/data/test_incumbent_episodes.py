"""Which episodes of a log the controller that runs today recorded alone."""

from types import SimpleNamespace

import numpy as np
import pytest

from neorl_train.data import incumbent_episodes


def log(manual_rows=(), behaviours=(), behaviour=None, modes=True):
    mode = np.zeros((9, 2), bool)
    mode[list(manual_rows), 1] = True
    return SimpleNamespace(
        mode=mode if modes else None, episode_lengths=[2, 4, 3], behaviour=behaviour,
        attributes={"behaviours": behaviours},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dataset", "name", "wanted"),
    [
        (log(), "TIC-1", [True, True, True]),
        (log([2, 5]), "TIC-1", [True, False, True]),
        (log([1, 8]), "TIC-1", [False, True, False]),
        (log([0, 3, 6]), "TIC-1", None),
        (log([2]), "", None),
        (log(modes=False), "TIC-1", None),
        (log([2], ("PI", "PID"), np.asarray([0, 1, 0])), "PI", [True, False, True]),
        (log([2], ("PI", "PID"), np.asarray([0, 1, 0])), "TIC-1", None),
    ],
)  # fmt: skip
def test_episodes_without_a_row_in_manual_are_its_own_if_the_log_names_nobody(
    dataset, name, wanted
):
    found = incumbent_episodes(dataset, name)
    assert (found if found is None else found.tolist()) == wanted
