"""What several processes say to each other before and while they train one run."""

import jax
import numpy as np
import pytest

from neorl_core import InputError
from neorl_train.training import _processes as several


def test_processes_that_do_not_agree_are_refused_by_number(monkeypatch):
    """What the collective would gather from three processes, without starting them."""

    def gathered(mine):
        return np.stack([mine, mine, np.roll(mine, 1)])

    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(several.multihost_utils, "process_allgather", gathered)
    with pytest.raises(InputError, match="process 2 has another log than process 0; give all"):
        several.require_equal("sha256:0123", "log")
    monkeypatch.setattr(
        several.multihost_utils, "process_allgather", lambda mine: np.stack([mine] * 3)
    )
    several.require_equal("sha256:0123", "log")


def test_a_process_that_fails_stops_the_others_by_number(monkeypatch):
    failed = np.array([[several.OK], [several.FAILED]])
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(several.multihost_utils, "process_allgather", lambda mine: failed)
    with (
        pytest.raises(InputError, match="process 1 could not read its copy of the log; its own"),
        several.all_or_none("read its copy of the log"),
    ):
        pass


def test_an_error_of_a_connection_says_that_a_process_was_lost(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with (
        pytest.raises(several.LostProcessError, match="another of the 2 processes was lost"),
        several.lost_in_one_line("start all of them again"),
    ):
        raise RuntimeError("Gloo: Connection closed by peer [127.0.0.1]:1")
    with (
        pytest.raises(several.LostProcessError, match=r"lost \(Gloo.*\); neorl-train resume 0001"),
        several.lost_in_one_line("neorl-train resume 0001"),
        several.lost_in_one_line("start all of them again"),
    ):
        raise RuntimeError("Gloo: Connection closed by peer")
    with pytest.raises(RuntimeError, match="bug"), several.lost_in_one_line("resume"):
        raise RuntimeError("bug")
