"""The table of transitions is all there is, whatever comes in."""

import itertools

import pytest

from neorl_deploy.loop import TARGETS, TRANSITIONS, WRITING, Mode, ModeConditions, next_mode

SITUATIONS = [
    ModeConditions(target, *reasons)
    for target in TARGETS
    for reasons in itertools.product(("", "why"), repeat=3)
]


def test_there_is_no_transition_beside_the_table_and_every_one_of_it_happens():
    seen = set()
    for mode, now in itertools.product(Mode, SITUATIONS):
        then, reason = next_mode(mode, now)
        assert reason
        if then is not mode:
            seen.add((mode, then))
    assert seen == set(TRANSITIONS)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("now", SITUATIONS)
def test_a_person_wins_and_the_loop_is_open_at_the_first_doubt(mode, now):
    then, _ = next_mode(mode, now)
    if now.target is not Mode.CLOSED_LOOP:
        assert then is now.target
    if then is Mode.CLOSED_LOOP:
        assert now.target is Mode.CLOSED_LOOP
        assert not (now.fallback or now.give_up) if mode in WRITING else not now.not_ready
    if mode in WRITING and now.give_up:
        assert then not in WRITING
