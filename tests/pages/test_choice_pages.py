"""The tables on choosing without the plant count what the stored results hold."""

import copy
import re

import pytest

from choice import retuning_page
from retuning_table import every_row


@pytest.fixture(scope="module")
def results() -> retuning_page.Results:
    return every_row()


def test_a_goal_is_counted_over_the_logs_that_are_there(results: retuning_page.Results) -> None:
    kind, _ = retuning_page.GOALS[0]
    fewer = copy.deepcopy(results)
    fewer["CSTR-v0"] = [
        row
        for row in fewer["CSTR-v0"]
        if retuning_page.kind_of(row) != kind or row["seed"] not in (1, 4)
    ]
    whole, cut = (retuning_page.goals(one).splitlines()[2] for one in (results, fewer))
    assert "with 5 logs of each (55 in all)" in whole
    assert "with 3 to 5 logs of each (53 in all)" in cut


def test_gains_outside_the_predicted_interval_are_counted_on_their_side(
    results: retuning_page.Results,
) -> None:
    """A pick whose prediction is moved above its gain leaves the interval on the lower side."""
    moved = copy.deepcopy(results)
    row = next(
        row
        for row in moved["CSTR-v0"]
        if row["way"] == "pick"
        and not row["reference"]
        and row["predicted_low"] <= row["gain"][0] <= 2 * row["predicted"] - row["predicted_low"]
    )
    width = row["gain"][2] - row["predicted_low"]
    row["predicted"] += 2 * width
    row["predicted_low"] += 2 * width
    before, after = (counts_of(retuning_page.covered(one)) for one in (results, moved))
    assert after == [before[0], before[1] - 1, before[2] + 1, before[3], before[4] + 1]


def test_a_prediction_that_is_twice_the_gain_on_every_log_is_an_error_of_the_model() -> None:
    """The other logs of the plant tell it, the draw of episodes and the width do not."""
    row = {"way": "pick", "log": "all", "reference": False, "failed": [], "error": 0.1}
    row |= {"predicted": 2.0, "predicted_low": 1.9, "gain": [1.0, 0.99, 1.01]}
    pool = {"candidates": [{"outside": [0.0, 0.0], "predicted": 1.0, "predicted_low": 0.9}]}
    pool["candidates"][0]["gain"] = 1.05
    lines = retuning_page.causes({"CSTR-v0": [row, dict(row)]}, [pool]).splitlines()[2:]
    inside = [line.split("|")[2].strip() for line in lines]
    assert inside == ["0 of 2", "0 of 2", "0 of 2", "1 of 1", "2 of 2", "0 of 2"]


def test_one_more_part_counts_on_the_half_of_the_plants_that_did_not_choose_its_constant() -> None:
    """Of two plants one is right; the other is off by as much as half of its gain would widen."""
    row = {"way": "pick", "log": "all controllers", "reference": False, "failed": [], "error": 0.0}
    row |= {"chosen": "network", "predicted": 2.0, "predicted_low": 1.0}
    rows = {name: [row | {"gain": [gain]}] for name, gain in (("A", 2.0), ("B", 2 - 2**0.5))}
    lines = retuning_page.missed(rows).splitlines()
    assert [line.split("|")[2].strip() for line in lines[2:5]] == ["0 of 0", "1 of 2", "0 of 0"]
    assert lines[8:10] == [
        "| none | 1 of 2 | 1 of 2 | 0 |",
        "| the predicted gain, times 0.50 | 2 of 2 | 1 of 2 | 0 |",
    ]


def test_a_network_counts_where_the_retuned_controller_alone_is_kept() -> None:
    """Four choices by hand: reached by a network, more by one, harm by one, and retuned alone."""
    choices = (
        ("kept", (0, 0, 0), "network", [], (5, 4, 6)),
        ("", (2, 1, 3), "retuned and network", [], (5, 4, 6)),
        ("", (2, 1, 3), "network", ["return"], (-2, -3, -1)),
        ("kept", (0, 0, 0), "retuned", ["return"], (0, -1, 1)),
    )
    rows = []
    for seed, (failed, gain, chosen, why, true) in enumerate(choices):
        both = {"log": "all controllers", "seed": seed, "reference": False}
        alone = {"way": "retuned", "chosen": "a 1", "failed": [failed] * bool(failed), "gain": gain}
        pick = {"way": "pick", "chosen": chosen, "failed": why, "gain": true}
        rows += [both | alone, both | pick]
    words = retuning_page.network_gains({"CSTR-v0": rows})
    assert re.findall(r"\b\d+\b", words.replace("-v0", "")) == list("211624131")


def counts_of(text: str) -> list[int]:
    """Picks for ordinary controllers, those inside, below, above, and surely below."""
    first = text.partition("Of ")[2].partition(" Of ")[0]
    return [int(number) for number in re.findall(r"\b\d+\b", first)]


def test_a_gain_has_the_digits_that_its_interval_has() -> None:
    assert retuning_page.gain_words((2.6134, 2.6021, 2.6247)) == "+2.613 (2.602 to 2.625)"
    assert retuning_page.gain_words((-34.6, -39.2, -30.1)) == "-35 (-39 to -30)"
    assert retuning_page.gain_words((7778.6, 7187.2, 8381.4)) == "+7779 (7187 to 8381)"
