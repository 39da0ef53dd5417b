"""A tag map fits its bundle or is refused with the table and the channel."""

import copy
import tomllib

import pytest

from neorl_deploy import DeployError
from neorl_deploy.bundle import read_bundle
from neorl_deploy.loop import draft_tags, read_tags, shared_tags, tags_of

from .conftest import completed

PLANT = """
[[tag]]
name = "level"
tag = "LI-101.PV"
unit = "m"
role = "observation"
[[tag]]
name = "valve"
tag = 'LC-101 "OP"'
unit = "%"
role = "manipulated"
[[tag]]
name = "temperature"
unit = "K"
role = "observation"
"""


@pytest.fixture(scope="module")
def read(exported):
    return read_bundle(exported)


def test_a_draft_names_what_is_known_and_asks_for_the_rest(read, tmp_path):
    plant = tmp_path / "plant.toml"
    plant.write_text(PLANT.replace("LI-101.PV", "Füllstand.PV"), "utf-8")
    text = draft_tags(read, plant=plant)
    assert 'tag = "Füllstand.PV"' in text  # for a person to read, without escapes
    document = tomllib.loads(text)
    assert [row["tag"] for row in document["input"]] == ["Füllstand.PV", "temperature", "TODO"]
    assert [row["tag"] for row in document["output"]] == ['LC-101 "OP"', "TODO"]
    assert "inf for a setpoint, whose time is that of its last change" in text
    assert all(len(str(row[end])) < 8 for row in document["input"] for end in ("low", "high"))
    path = tmp_path / "tags.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(DeployError, match="pressure: no tag is written yet"):
        read_tags(path, read)
    path.write_text(text.replace("TODO", "X.1", 1).replace('"TODO"', '"X.2"'), "utf-8")
    tags = read_tags(path, read)
    level = tags.inputs[0]
    assert (level.low, level.high) == pytest.approx((-0.1, 2.1))
    assert level.max_age == 90.0
    assert tags.outputs[0].tolerance == pytest.approx(1.0)
    assert tags.writable == {'LC-101 "OP"', "X.2"}


def test_a_plant_of_another_unit_is_refused(read, tmp_path):
    plant = tmp_path / "plant.toml"
    plant.write_text(PLANT.replace('unit = "K"', 'unit = "degC"'))
    with pytest.raises(DeployError, match=r"temperature is in 'degC' there, the bundle.*'K'"):
        draft_tags(read, plant=plant)
    with pytest.raises(DeployError, match="cannot read"):
        draft_tags(read, plant=tmp_path / "none.toml")


def _set(table, row, **fields):
    def change(document):
        document[table][row].update(fields)

    return change


def _loop(**fields):
    return lambda document: document["loop"].update(fields)


NAMES = ("owner", "decided", "state", "granted", "sequence", "active", "reason")
BLOCK = {name: name.upper() for name in NAMES}
CHANGES = {
    "another bundle": (lambda d: d.update(bundle="sha256:ab"), "is for the bundle sha256:ab"),
    "no connection": (lambda d: d.update(connection={}), r"needs a table \[connection\]"),
    "a mistyped table": (lambda d: d.update(inputs=[]), "unknown entries inputs"),
    "a mistyped entry": (_set("input", 0, max_agee=1.0), "'max_agee'; did you mean max_age"),
    "a mistyped channel": (_set("input", 0, channel="levell"), "'levell'; did you mean 'level'"),
    "a channel twice": (_set("input", 1, channel="level", unit="m"), "'level' is mapped twice"),
    "a missing channel": (lambda d: d["input"].pop(), "no tag for pressure"),
    "another unit": (_set("input", 1, unit="degC"), "temperature: the bundle has it in 'K'"),
    "no number": (_set("input", 0, max_age="60"), "max_age must be a number, got '60'"),
    "NaN": (_set("input", 0, low=float("nan")), "low must be a number"),
    "no scale": (_set("output", 0, scale=0.0), "valve: scale must be finite and not zero"),
    "no tolerance": (_set("output", 0, tolerance=0.0), "valve: tolerance must be above zero"),
    "an odd rule": (_set("input", 0, uncertain="maybe"), 'uncertain must be "good" or "bad"'),
    "an empty tag": (_set("output", 0, read_back=""), "valve: no tag is written yet"),
    "limits upside down": (_set("input", 0, low=3.0), "low must be below high, got 3 and"),
    "a negative age": (
        _set("input", 0, max_age=-1.0),
        "max_age must be above zero seconds, got -1",
    ),
    "one tag for two": (_set("output", 1, tag="LC.OP"), r"the tag LC\.OP is named for two values"),
    "no part": (_loop(late=1.5), "late must be above 0 and at most 1"),
    "half a period": (_loop(most_misses=2.5), "must be an integer above zero"),
    "a block without a beat": (
        lambda d: d.update(block=BLOCK, loop={}),
        r"\[block\]: it needs heartbeat .BEAT. and plant_heartbeat",
    ),
    "a block that reads what is written": (
        lambda d: d.update(block=BLOCK),
        "tag is the proposal and read_back the set point",
    ),
    "half a block": (lambda d: d.update(block={"owner": "O"}), r"\[block\]: decided is missing"),
    "a heartbeat that requests modes": (
        _loop(heartbeat="MODE"),
        "would write 'MODE'.*tells it mode",
    ),
    "advice that stops": (_set("output", 0, advice="STOP"), "tells it stop: it would obey itself"),
    "an actuator that permits itself": (
        _set("output", 0, permit="LC.OP"),
        "tells it permit valve: it would obey itself",
    ),
    "a plant that lives by the loop's beat": (
        _loop(plant_heartbeat="BEAT"),
        "would write 'BEAT'.*tells it plant",
    ),
    "an impatient heartbeat": (_loop(plant_silence=3.0), "shorter than a control period"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_does_not_fit_is_one_line(read, document, change):
    changed = completed(copy.deepcopy(document))
    CHANGES[change][0](changed)
    with pytest.raises(DeployError, match=CHANGES[change][1]) as error:
        tags_of(changed, read, "tags.toml")
    assert str(error.value).startswith("tags.toml")
    assert "\n" not in str(error.value)


def test_a_tag_that_is_read_twice_is_named(read, document):
    changed = completed(copy.deepcopy(document))
    assert shared_tags(tags_of(changed, read, "tags.toml"), "tags.toml") == []
    changed["input"][1]["tag"] = changed["input"][0]["tag"]
    (line,) = shared_tags(tags_of(changed, read, "tags.toml"), "tags.toml")
    tag = changed["input"][0]["tag"]
    assert line == (
        f"tags.toml: level and temperature are read from the same tag {tag!r}; is that intended?"
    )


def test_values_are_scaled_both_ways(make):
    bench = make()
    cycle = bench.step()
    assert cycle.measured.obs[2] == pytest.approx(3.0, rel=1e-4)  # 300 kPa
    output = bench.loop.tags.outputs[0]
    object.__setattr__(output, "scale", 100.0)  # a tag from 0 to 1
    bench.plant.tags["LC.OP"] = 0.4
    assert bench.step().received[0] == pytest.approx(40.0)
    bench.close()
    assert bench.plant.writes[0]["LC.OP"] == pytest.approx(
        float(bench.step().received[0]) / 100.0, abs=0.2
    )
    assert all(0 <= written["LC.OP"] <= 1 for written in bench.plant.writes)
