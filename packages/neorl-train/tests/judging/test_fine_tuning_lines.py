"""What the terminal says of a fine-tuning, and its file."""

import dataclasses

import pytest

from neorl_core import InputError
from neorl_train.judging import (
    Collected,
    Estimate,
    FineTuned,
    FineTuning,
    read_fine_tuning,
    write_fine_tuning,
)

SEED = Collected(0, 1000, 10, 5.0, (3,), 1, 40, 10)
LOST = FineTuned(
    name="iql",
    before=Estimate(430.0, 420.0, 440.0),
    after=Estimate(260.0, 240.0, 280.0),
    gain=Estimate(-170.0, -190.0, -150.0),
    each_seed=(-170.0,),
    regret=(505.0,),
    collected=(SEED,),
)


def said(one):
    lines = FineTuning("points", ("level",), (one,)).lines()
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def test_a_loss_beyond_doubt_is_said_in_words():
    first, lost, regret, plant = said(LOST)
    assert "return 430 [420, 440] before, 260 [240, 280] after" in first
    assert "the policies of the run that it started from have a higher return" in lost
    assert "505" in regret
    assert "3 over the limit of level, 1 trips, the guard acted in 5" in plant


def test_of_a_loss_in_doubt_only_the_interval_is_said():
    doubt = dataclasses.replace(LOST, gain=Estimate(-170.0, -400.0, 60.0))
    assert len(said(doubt)) == 3


def test_its_file_gives_back_what_was_written(tmp_path):
    results = FineTuning("points", ("level",), (LOST,))
    write_fine_tuning(tmp_path, results)
    assert read_fine_tuning(tmp_path) == results
    with pytest.raises(InputError, match=r"finetune\.json"):
        read_fine_tuning(tmp_path / "missing")
