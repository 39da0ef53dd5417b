"""The page of structured text and its simulation are the same block, scan by scan."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from neorl_deploy.loop import (
    BlockInputs,
    BlockReason,
    BlockSettings,
    BlockState,
    block_page,
    block_scan,
)

KEPT = BlockSettings(low=(0.0, 280.0), high=(100.0, 320.0), move=(15.0, 40.0), patience=3)
WORDS = {"NOT": "not", "AND": "and", "OR": "or", "TRUE": "True", "FALSE": "False", "MOD": "%"}


def translated(body):
    """The statements of the page as Python, by its few words: IF, FOR, assignment, comparison."""
    lines, depth = [], 0
    for line in re.sub(r"\(\*.*?\*\)", "", body, flags=re.DOTALL).splitlines():
        text = line.strip().rstrip(";")
        if not text:
            continue
        text = re.sub(r"\b[A-Z]+\b", lambda m: WORDS.get(m[0], m[0]), text)
        text = re.sub(r"(?<![:<>])=(?!=)", "==", text).replace("<>", "!=").replace(":==", "=")
        text = re.sub(r":=", "=", text)
        if text in ("END_IF", "END_FOR"):
            depth -= 1
            continue
        depth -= text.startswith(("ELSIF", "ELSE"))
        opens = text.startswith(("IF", "ELSIF", "ELSE", "FOR"))
        text = re.sub(r"^(IF|ELSIF) (.*) THEN$", lambda m: f"{KEY[m[1]]} {m[2]}:", text)
        text = re.sub(r"^FOR I == 1 TO N DO$|^FOR I = 1 TO N DO$", "for I in (1, 2):", text)
        text = "else:" if text == "ELSE" else text
        lines.append("    " * depth + text)
        depth += opens
    return "\n".join(lines)


KEY = {"IF": "if", "ELSIF": "elif"}


class Page:
    """The page itself, executed: arrays count from one."""

    def __init__(self):
        text = block_page()
        body = text[text.rindex("END_VAR") + 7 : text.index("END_FUNCTION_BLOCK")]
        self.code = compile(translated(body), "neorl_block.st", "exec")
        number = ("SEQUENCE", "GRANTED", "REASON", "ALIVE", "LAST_BEAT", "SILENT", "I")
        self.names = dict.fromkeys(number, 0) | dict.fromkeys(
            ("ACTIVE", "STARTED", "PRESSED", "TRIPPED", "WAS_ACTIVE", "WAS_REMOTE", "FRESH"), False
        )
        self.names |= {"LOW": Array(KEPT.low), "HIGH": Array(KEPT.high), "MOVE": Array(KEPT.move)}
        self.names |= {"PATIENCE": KEPT.patience, "N": 2, "SETPOINT": Array((0.0, 0.0))}

    def scan(self, inputs):
        given = inputs._asdict()
        for name in ("proposal", "permit", "own"):
            given[name] = Array(given[name])
        self.names |= {name.upper(): value for name, value in given.items()}
        exec(self.code, {}, self.names)
        shown = {name.lower(): value for name, value in self.names.items()}
        state = {name: shown[name] for name in BlockState._fields}
        return BlockState(**{**state, "setpoint": tuple(state["setpoint"].values)})


class Array:
    def __init__(self, values):
        self.values = list(values)

    def __getitem__(self, index):
        return self.values[index - 1]


few = st.integers(0, 3)
yes = st.integers(0, 9).map(bool)  # nine times in ten
valve = st.sampled_from([40.0, 45.0, 54.0, 90.0, 101.0, float("nan"), float("inf")])
SCANS = st.lists(
    st.builds(
        BlockInputs,
        proposal=st.tuples(valve, st.sampled_from([300.0, 310.0, 8901.0])),
        owner=st.sampled_from([7, 7, 7, 7, 8, 0]),
        decided=st.sampled_from([0, 1, 1, 1, 2, 3]),
        state=st.sampled_from([3, 3, 3, 4, 1, 5]),
        beat=few,
        permit=st.tuples(yes, yes),
        remote=yes,
        trip=yes.map(lambda x: not x),
        grant=st.booleans(),
        own=st.just((40.0, 300.0)),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(SCANS)
def test_the_page_and_the_simulation_agree_in_every_scan(scans):
    page, state = Page(), BlockState((0.0, 0.0))
    for inputs in scans:
        state = block_scan(KEPT, state, inputs)
        assert page.scan(inputs) == state


def asked(beat, **changes):
    base = BlockInputs(
        proposal=(41.0, 301.0), owner=7, decided=1, state=3, beat=beat, permit=(True, True),
        remote=True, trip=False, grant=False, own=(40.0, 300.0),
    )  # fmt: skip
    return base._replace(**changes)


def closed():
    state = BlockState((0.0, 0.0))
    for beat in range(3):
        state = block_scan(KEPT, state, asked(beat, state=1, grant=beat == 2))
    assert (state.granted, state.reason) == (7, BlockReason.NOT_ASKED)
    state = block_scan(KEPT, state, asked(3))
    assert (state.active, state.setpoint) == (True, (41.0, 301.0))
    return state


FAULTS = {
    BlockReason.NO_PERMIT: {"permit": (True, False)},
    BlockReason.NOT_REMOTE: {"remote": False},
    BlockReason.NOT_GRANTED: {"owner": 8},
    BlockReason.VOID: {"decided": 0},
    BlockReason.OUTSIDE: {"proposal": (8901.0, 301.0)},
    BlockReason.TOO_FAST: {"proposal": (60.0, 301.0)},
    BlockReason.TRIPPED: {"trip": True},
}


def test_every_reason_sheds_in_the_same_scan_and_only_a_person_grants_again():
    for reason, change in FAULTS.items():
        before = closed()
        state = block_scan(KEPT, before, asked(4, **change))
        assert (state.reason, state.active, state.setpoint) == (reason, False, (40.0, 300.0))
        assert (state.granted, state.sequence) == (0, before.sequence + 1)
        for beat in range(5, 9):
            state = block_scan(KEPT, state, asked(beat, decided=state.sequence))
        assert (state.reason, state.active) == (BlockReason.NOT_GRANTED, False)


def test_a_beat_that_stands_still_sheds_after_the_patience_of_the_plant():
    state, scans = closed(), 0
    while state.active:
        state, scans = block_scan(KEPT, state, asked(3)), scans + 1
    assert (scans, state.reason, state.granted) == (KEPT.patience + 1, BlockReason.SILENT, 0)


def test_a_loop_that_leaves_in_order_keeps_its_grant_for_its_next_turn():
    state = block_scan(KEPT, closed(), asked(4, state=1))
    assert (state.active, state.granted, state.setpoint) == (False, 7, (40.0, 300.0))
    assert block_scan(KEPT, state, asked(5)).active


def test_what_was_decided_before_a_controller_left_remote_is_void():
    state = block_scan(KEPT, closed(), asked(4, state=1))
    for remote in (False, True):
        state = block_scan(KEPT, state, asked(4, state=1, remote=remote))
    assert (state.granted, state.sequence) == (7, 2)
    assert block_scan(KEPT, state, asked(5)).reason == BlockReason.VOID
    assert block_scan(KEPT, state, asked(5, decided=2)).active


def test_values_without_a_new_beat_are_not_taken():
    state = block_scan(KEPT, closed(), asked(3, proposal=(50.0, 301.0)))
    assert (state.active, state.setpoint) == (True, (41.0, 301.0))


def test_counters_wrap_and_what_was_decided_before_the_wrap_is_void():
    last = {"sequence": 29_999, "alive": 29_999, "last_beat": 29_999}
    state, page = closed()._replace(**last), Page()
    page.names |= {name.upper(): value for name, value in state._asdict().items()}
    page.names["SETPOINT"] = Array(state.setpoint)
    scans = [
        asked(0, decided=29_999),  # the beat has wrapped
        asked(0, decided=29_999, trip=True),  # and now the sequence
        asked(1, state=1, grant=True),
        asked(2, decided=29_999),
        asked(3, decided=1),
    ]
    seen = []
    for inputs in scans:
        state = block_scan(KEPT, state, inputs)
        assert page.scan(inputs) == state
        seen.append((state.active, state.reason, state.sequence, state.alive))
    assert seen == [
        (True, BlockReason.TAKEN, 29_999, 0),
        (False, BlockReason.TRIPPED, 0, 1),
        (False, BlockReason.NOT_ASKED, 0, 2),
        (False, BlockReason.VOID, 0, 3),
        (False, BlockReason.VOID, 0, 4),
    ]
