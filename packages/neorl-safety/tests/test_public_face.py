"""Names, examples and flags of the public face."""

import doctest
import importlib
import pkgutil

import numpy as np

import neorl_safety
from neorl_safety.filters import Flag, Limit, empty_report, flag_names


def test_all_names_exist_in_sorted_order():
    assert sorted(neorl_safety.__all__) == sorted(set(neorl_safety.__all__))
    for name in neorl_safety.__all__:
        assert getattr(neorl_safety, name).__doc__


def test_examples_run():
    attempted = 0
    for module in pkgutil.iter_modules(neorl_safety.__path__):
        result = doctest.testmod(importlib.import_module(f"neorl_safety.{module.name}"))
        assert result.failed == 0
        attempted += result.attempted
    assert attempted > 10


def test_flags_are_distinct_bits_with_names():
    assert len({int(flag) for flag in Flag}) == len(Flag) == 12
    assert flag_names(0) == ()
    assert flag_names(Flag.REQUEST_NONFINITE | Flag.RATE_ACTIVE) == (
        "request_nonfinite",
        "rate_active",
    )
    assert flag_names(np.uint32(5), Limit) == ("low", "rate_down")
    assert flag_names(1 << 30) == ()


def test_an_empty_report_changes_nothing():
    report = empty_report(3)
    assert report.flags.shape == ()
    assert report.intervention.tolist() == [0, 0, 0]
