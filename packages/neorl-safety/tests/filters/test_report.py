import numpy as np

from neorl_safety.filters import Flag, Limit, empty_report, flag_names


def test_flags_are_distinct_bits_with_names():
    assert len({int(flag) for flag in Flag}) == len(Flag) == 25
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
