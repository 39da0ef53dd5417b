"""The commissioning gate names what is wrong, and without its result the loop is not closed."""

import copy
import math

import pytest

from neorl_deploy.loop import (
    ControlLoop,
    EngineeringRange,
    Mode,
    Quality,
    check_record,
    check_tags,
    tags_of,
    unchecked,
)

from .conftest import completed

NAMES = ("valve", "jacket")


@pytest.fixture
def checked(make, document):
    """Checks a plant against a changed tag map; the faults by name."""

    def run(change=lambda document: None, plant=lambda plant: None, ranges=None, steps=NAMES):
        bench = make()
        bench.plant.hands = {"LC.OP": 2.0, "TC.SP": 1.0}
        changed = completed(copy.deepcopy(document))
        for row, low, high in zip(changed["output"], (0.0, 280.0), (100.0, 320.0), strict=True):
            row |= {"raw_low": low, "raw_high": high}
        change(changed)
        plant(bench.plant)
        tags = tags_of(changed, bench.runtime.bundle, "tags.toml")
        if ranges is not None:
            bench.plant.ranges = lambda tags: ranges
        manifest = bench.runtime.manifest
        found = check_tags(tags, manifest, bench.plant, bench.clock, steps=steps)
        assert not bench.plant.writes or set(bench.plant.writes[0]) == {"BEAT"}
        return {finding.name: finding.fault for finding in found if finding.fault}

    return run


def rows(table, number, **values):
    return lambda document: document[table][number].update(values)


def set_tag(tag, value):
    return lambda plant: plant.tags.update({tag: value})


def test_a_plant_that_fits_its_tag_map_passes(checked):
    assert checked() == {}
    ends = {"LC.OP": EngineeringRange(0, 100, "%"), "LI": EngineeringRange(0, 2.5, "m")}
    assert checked(ranges=ends) == {}


@pytest.mark.parametrize(
    ("arguments", "name", "words"),
    [
        (
            {
                "change": rows("output", 0, scale=0.01),
                "plant": lambda p: p.hands.update({"LC.OP": 60.0}),
            },
            "range of valve",
            "0 to 10000 of the tag",
        ),
        (
            {"change": rows("output", 0, scale=100.0), "plant": set_tag("LC.OP", 0.4)},
            "range of valve",
            "is the scale right",
        ),
        ({"ranges": {"LC.OP": EngineeringRange(0, 1)}}, "range of valve", "which has 0 to 1"),
        (
            {"ranges": {"LI": EngineeringRange(0, 200, "cm")}},
            "input level (m by a factor of 1, and the server states cm)",
            "is the scale right",
        ),
        (
            {"change": rows("output", 0, raw_low=-math.inf, raw_high=math.inf)},
            "range of valve",
            "give raw_low and raw_high",
        ),
        ({"steps": ("jacket",)}, "direction of valve", "no person has moved it"),
        ({"plant": lambda p: p.hands.pop("LC.OP")}, "direction of valve", "it still reads 40 %"),
        (
            {"change": rows("output", 0, scale=-1.0, offset=100.0)},
            "direction of valve",
            "it went from 60 to 58 % in a step upwards: is it reversed?",
        ),
        ({"plant": set_tag("LC.OP", 104.0)}, "read-back of valve", "it shows 104"),
        ({"plant": lambda p: p.quality.update(TI=Quality.BAD)}, "input temperature", "is bad"),
        ({"plant": lambda p: p.unstamped.add("TI")}, "input temperature", "it has no time stamp"),
        ({"plant": set_tag("LI", 7.0)}, "input level", "it reads 7"),
        ({"plant": lambda p: p.quality.update(BEAT=Quality.BAD)}, "heartbeat BEAT", "be read"),
        ({"plant": lambda p: p.refuses.update(BEAT="Bad")}, "heartbeat BEAT", "Bad"),
        ({"plant": lambda p: setattr(p, "ticks", 0.0)}, "plant_heartbeat ALIVE", "not change"),
        (
            {"change": lambda d: d["loop"].update(unattended="")},
            "permit",
            "direct writing needs a permit for valve, jacket",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(checked, arguments, name, words):
    faults = checked(**arguments)
    assert words in faults[name]
    assert len(faults) == 1


def test_the_result_belongs_to_one_tag_map_and_the_loop_asks_for_it(make):
    bench = make()
    tags = bench.loop.tags
    manifest = bench.runtime.manifest
    found = check_tags(tags, manifest, bench.plant, bench.clock)
    passed = check_record(tags, [f._replace(fault="") for f in found], "engineer")
    assert unchecked(tags, passed) == ""
    assert "has not been checked" in unchecked(tags, None)
    failed = check_record(tags, found, "engineer")
    assert "has failed (range of valve: the server states no range" in unchecked(tags, failed)
    assert "has changed since" in unchecked(make(clean=6).loop.tags, passed)
    assert unchecked(make().loop.tags, passed) == ""
    loop = ControlLoop(
        bench.runtime, tags, bench.plant, bench.clock, unchecked=unchecked(tags, None)
    )
    bench.loop = loop
    loop.ask(Mode.CLOSED_LOOP, "shift leader")
    assert "has not been checked at the plant" in bench.step(8)[-1].reason


def test_a_number_outside_the_raw_limits_is_never_written(make, document):
    output = [{**row, "raw_high": 100.0} for row in document["output"]]
    output[0]["scale"] = 0.01  # where 1 is right
    output[1]["raw_high"] = 320.0
    bench = make(tables={"output": output})
    bench.plant.tags["LC.OP"] = 4000.0
    bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")
    cycle = bench.step(8)[-1]
    assert any("outside its raw limits" in note for note in cycle.notes)
    assert not any("LC.OP" in written for written in bench.plant.writes)
