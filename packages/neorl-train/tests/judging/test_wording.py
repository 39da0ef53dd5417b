import pytest

from neorl_train.judging import Estimate
from neorl_train.judging._wording import (
    confidence,
    decimals,
    difference,
    enumeration,
    finest,
    number,
    percent,
    quantity,
    significant,
    with_decimals,
    with_interval,
    with_sign,
)


def test_numbers_have_as_many_digits_as_they_deserve():
    assert decimals([Estimate(0, 0.0, 0.31)]) == 2
    assert decimals([Estimate(0, 0.0, 31.0)]) == 0
    assert decimals([None, Estimate(1, 1, 1)]) == 0
    assert finest([Estimate(0, 0.0, 31.0), Estimate(0, 0.0, 0.06), Estimate(1, 1, 1)]) == 2
    assert finest([Estimate(0, 0.0, 1e-9)]) == 2
    assert with_decimals(-0.001, 2) == "0.00"
    assert with_decimals(-1.25, 1) == "\N{MINUS SIGN}1.2"
    assert with_decimals(float("nan"), 1) == "not a number"
    assert with_decimals(12345.6, 0) == "12\N{THIN SPACE}346"
    assert with_sign(1.0, 1) == "+1.0"
    assert with_sign(0.0, 1) == "0.0"
    assert with_sign(0.001, 1) == "0.0"
    narrow = "\N{NO-BREAK SPACE}"
    assert with_interval(Estimate(1, 0.5, 1.5), 1) == f"1.0{narrow}[0.5,{narrow}1.5]"
    assert percent(0.0) == f"0{narrow}%"
    assert percent(1e-4) == f"<{narrow}0.1{narrow}%"
    assert percent(0.99999) == f">{narrow}99.9{narrow}%"
    assert enumeration(["a", "b", "c"]) == "a, b and c"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (12.345678, "12.35"),
        (1e-7, "1.00e-07"),
        (123456.0, "123456"),
        (1.5e7, "1.50e+07"),
        (-0.5, "-0.5"),
    ],
)
def test_numbers_are_short(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.179312, "0.179"),
        (12.345, "12.3"),
        (123456.7, "123\N{THIN SPACE}457"),
        (0.0, "0"),
        (-0.0012345, "\N{MINUS SIGN}0.00123"),
        (float("nan"), "not a number"),
    ],
)
def test_a_number_without_an_interval_has_three_digits(value, text):
    assert significant(value) == text


def test_quantities_bear_their_unit():
    assert quantity(3.0, "K") == "3 K"
    assert quantity(0.0, "K min") == "0 K min"
    assert quantity(3.0, "1") == "3"
    assert quantity(3.0, "100 $") == "3 × 100 $"


@pytest.mark.parametrize(
    ("level", "words"), [(0.95, "95 %"), (0.9, "90 %"), (0.975, "97.5 %"), (0.999, "99.9 %")]
)
def test_a_confidence_level_is_said_in_per_cent(level, words):
    assert confidence(level) == words


def test_the_sign_of_an_end_is_not_rounded_away():
    assert difference(Estimate(18.0, -0.384, 30.804), 0) == "+18.0\N{NO-BREAK SPACE}[" + (
        "\N{MINUS SIGN}0.4,\N{NO-BREAK SPACE}30.8]"
    )
    assert difference(Estimate(18.0, 0.0, 30.8), 0).endswith("[0,\N{NO-BREAK SPACE}31]")
