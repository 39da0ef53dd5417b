"""The page on running beside a plant lists the transitions that there are."""

from pathlib import Path

from neorl_deploy.loop._modes import TRANSITIONS

PAGE = Path(__file__).resolve().parents[1] / "docs/pages/reference/loop.md"


def test_the_page_lists_every_transition_with_its_cause():
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines()]
    listed = {(row[0], row[1]): row[2] for row in rows if len(row) == 3}
    for (mode, then), why in TRANSITIONS.items():
        assert listed[mode, then] == why
    modes = {mode for pair in TRANSITIONS for mode in pair}
    assert {pair for pair in listed if pair[0] in modes and pair[1] in modes} == set(TRANSITIONS)
