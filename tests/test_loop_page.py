"""The page of the loop lists the transitions that there are, and failures that tests show."""

import re
from pathlib import Path

import pytest

from neorl_deploy.loop import TRANSITIONS, WRITING, BlockReason

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/pages/reference/loop.md"
TESTS = ROOT / "packages/neorl-deploy/tests"

SHOWN_BY: dict[str, tuple[str, BlockReason | None]] = {
    "a measurement is bad": (
        "loop/test_faults.py::test_what_may_not_be_trusted_is_lost_and_the_fallback_acts_in_the_same_period",
        None,
    ),
    "the connection is lost": ("loop/test_plant_side.py::connection_lost", BlockReason.SILENT),
    "the server or the plant's controller restarts": (
        "loop/test_plant_side.py::server_restarts",
        BlockReason.TRIPPED,
    ),
    "a write is refused": ("loop/test_faults.py::test_a_refused_write_is_told_retried", None),
    "a part of an action": (
        "loop/test_write.py::test_an_action_that_is_refused_in_part_is_taken_back",
        None,
    ),
    "a read-back or the heartbeat": (
        "loop/test_faults.py::test_what_cannot_be_read_back_is_not_written",
        None,
    ),
    "a hand moves": ("loop/test_plant_side.py::hand_on_the_set_point", BlockReason.TRIPPED),
    "a trip between": (
        "loop/test_plant_side.py::trip_between_reading_and_writing",
        BlockReason.TRIPPED,
    ),
    "an actuator is outside": (
        "loop/test_write.py::test_an_actuator_outside_its_declared_range_is_not_taken_over",
        None,
    ),
    "a value is outside": ("loop/test_plant_side.py::wrong_scale", BlockReason.OUTSIDE),
    "a move is larger": ("loop/test_plant_side.py::too_large_a_move", BlockReason.TOO_FAST),
    "a permit is withdrawn": (
        "loop/test_plant_side.py::permit_of_one_variable",
        BlockReason.NO_PERMIT,
    ),
    "a controller is switched": (
        "loop/test_plant_side.py::controller_in_local",
        BlockReason.NOT_REMOTE,
    ),
    "another process writes": ("loop/test_plant_side.py::another_owner", BlockReason.NOT_GRANTED),
    "half an action": ("loop/test_plant_side.py::half_a_write", BlockReason.SILENT),
    "a decision is older": ("loop/test_plant_side.py::old_sequence", BlockReason.VOID),
    "the heartbeat of the plant": (
        "loop/test_faults.py::test_a_plant_that_only_seems_alive_is_not_trusted",
        None,
    ),
    "a decision comes late": (
        "loop/test_write.py::test_a_decision_that_its_record_made_late_is_not_written",
        None,
    ),
    "periods are missed": (
        "loop/test_faults.py::test_missed_periods_are_skipped_counted_and_after_three",
        BlockReason.SILENT,
    ),
    "the clock of this machine": (
        "loop/test_faults.py::test_a_clock_that_is_set_moves_no_period",
        None,
    ),
    "the process is killed": ("loop/test_plant_side.py::killed", BlockReason.SILENT),
    "the process is started again": (
        "loop/test_faults.py::test_a_loop_that_is_started_again_begins_in_shadow",
        None,
    ),
    "the bundle does not decide": (
        "loop/test_faults.py::test_a_bundle_whose_fallback_does_not_decide_either_releases",
        BlockReason.SILENT,
    ),
    "a period cannot be recorded": (
        "loop/test_faults.py::test_what_cannot_be_recorded_is_not_written",
        None,
    ),
}
"""Beginning of each row, a function that shows it, and the reason that the block states."""


ARRANGEMENT: dict[str, str] = {
    "the controller that uses AI": "loop/test_faults.py::test_what_may_not_be_trusted_is_lost",
    "limits on its output, without AI": "runtime/test_runtime.py::test_a_step_never_gives_anything",
    "a controller without AI that takes over": "loop/test_faults.py::test_a_stop_lets_the_fallback",
    "supervision on hardware of its own": "loop/test_plant_side.py::test_every_fault_ends_with",
    "the safety function": "",  # it is the plant's
}
"""Each part of the arrangement of ISO/IEC TR 5469, and the beginning of a test that shows it."""


def rows(heading: str) -> list[list[str]]:
    """Cells of the table rows of a section of the page, its headings aside."""
    part = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in cells]


def test_the_page_lists_every_transition_with_its_cause():
    listed = {
        (mode, then): why
        for before, after, why in rows("The modes")
        for mode in before.split(", ")
        for then in after.split(", ")
    }
    modes = {mode for pair in TRANSITIONS for mode in pair}
    there = {pair: why for pair, why in listed.items() if {*pair} <= modes}
    assert there == TRANSITIONS


def test_every_failure_on_the_page_is_shown_by_a_test():
    failures = rows("What the plant sees in each failure")[1:]
    assert [name for name in SHOWN_BY for row in failures if row[0].startswith(name)] == [*SHOWN_BY]
    assert len(failures) == len(SHOWN_BY)


@pytest.mark.parametrize("name", ARRANGEMENT)
def test_a_part_of_the_arrangement_is_shown_by_a_test_and_says_what_it_is_not(name):
    text = (ROOT / "docs/pages/explanation/guard-guarantee.md").read_text()
    table = text.split("**What ISO/IEC TR 5469 has to do with it.**")[1].split("\n\n")[1]
    parts = [[c.strip() for c in r.strip("|").split("|")] for r in table.splitlines()[2:]]
    assert [part for part, _, _ in parts] == [*ARRANGEMENT]
    assert all(here and limit for _, here, limit in parts)
    file, _, function = ARRANGEMENT[name].partition("::")
    assert not file or re.search(rf"(?m)^def {function}", (TESTS / file).read_text())


def test_the_picture_shows_every_mode_on_the_side_on_which_it_writes():
    picture = (ROOT / "docs/pages/images/loop.svg").read_text()
    texts = re.findall(r"<text[^>]*>([^<]+)<", picture)
    modes = {str(mode) for pair in TRANSITIONS for mode in pair}
    held, written = (
        texts.index(f"the loop writes {what}") for what in ("no actuator", "the actuators")
    )
    assert {*texts[held:written]} & modes == modes - {*WRITING}
    assert {*texts[written:]} & modes == {*WRITING}


@pytest.mark.parametrize("name", SHOWN_BY)
def test_a_failure_names_the_reason_of_the_block(name):
    file, _, function = SHOWN_BY[name][0].partition("::")
    text = (TESTS / file).read_text()
    assert re.search(rf"(?m)^def {function}", text)
    if not function.startswith("test_"):  # one fault of a campaign on a real server
        assert re.search(rf"(?m)^    {function},$", text.partition("CAMPAIGN = [")[2])
    (row,) = [row for row in rows("What the plant sees in each failure") if row[0].startswith(name)]
    stated = {int(number) for number in re.findall(r"\b\d\b", row[2])}
    reason = SHOWN_BY[name][1]
    assert stated == (set() if reason is None else {int(reason)})
