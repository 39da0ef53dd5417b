"""Interlocks of ``plant.toml``: parsed, as functions of a plant model, and beside the log."""

import copy
import dataclasses
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neorl_core import InputError
from neorl_envs import Dataset
from neorl_envs.inspection import dataset_report, report_text
from neorl_envs.plant_logs import (
    DeclaredInterlocks,
    convert_log,
    declared_plant,
    draft_plant_log,
    plant_log_from_dict,
    read_plant_log,
)
from neorl_envs.plant_logs._interlocks import (
    checked_interlocks,
    declared_interlocks,
    interlock_activity,
    interlocks_of,
)

from .conftest import WIDE, Tank, toml_of, wide_lines

HIGH = {"name": "high level", "when": "level > 1.25", "set": {"valve": 0.0}}
RANGES = {"level": (0, 2), "setpoint": (0, 2), "valve": (0, 100)}
NAMES = list(RANGES)


def with_interlocks(*interlocks: dict[str, Any]) -> dict[str, Any]:
    values = {**copy.deepcopy(WIDE), "interlock": list(interlocks)}
    values["tag"].append({"name": "pump", "tag": "P-1.RUN", "role": "auxiliary"})
    return values


def exported(tank: Tank, folder: Path) -> Path:
    lines = wide_lines(tank)
    text = [lines[0] + ",P-1.RUN", *(line + ",1" for line in lines[1:])]
    (folder / "log.csv").write_text("\n".join(text) + "\n")
    return folder


def converted(tank: Tank, folder: Path, *interlocks: dict[str, Any]) -> Dataset:
    config = plant_log_from_dict(with_interlocks(*interlocks), "plant.toml")
    return convert_log(config, folder=exported(tank, folder))


@pytest.fixture
def locked(tank: Tank) -> Tank:
    """The tank with a valve that an interlock closes at a high level."""
    tank.valve = np.where(tank.level > 1.25, 0.0, tank.valve)
    return tank


BAD = {
    "an unknown tag": (
        HIGH | {"when": "levle > 1.25"},
        r"plant.toml: \[\[interlock\]\] 'high level': when: 'levle > 1.25' uses 'levle', which is "
        "not a tag; did you mean 'level'",
    ),
    "a tag that is not observed": (
        HIGH | {"when": "pump < 0.5"},
        "'pump < 0.5' uses 'pump', which has the role 'auxiliary'; a plant model knows only",
    ),
    "an earlier value": (
        HIGH | {"when": "level > before_level"},
        "uses 'before_level', but an interlock reads only the values of the time .* use 'level'",
    ),
    "an unknown manipulated variable": (
        HIGH | {"set": {"vlave": 0.0}},
        r"unknown manipulated variable in plant.toml: \[\[interlock\]\] 'high level': set: 'vlave';"
        " did you mean 'valve'",
    ),
    "an observation that is set": (
        HIGH | {"set": {"level": 0.0}},
        "unknown manipulated variable .* 'level'; .*known: valve",
    ),
    "a value outside the range": (
        HIGH | {"set": {"valve": 120}},
        "'high level': set.valve = 120 % is outside the range of valve, 0 to 100 %; check the unit",
    ),
    "a value that is no number": (
        HIGH | {"set": {"valve": float("nan")}},
        "set.valve = nan % is outside the range of valve",
    ),
    "true as a value": (
        HIGH | {"set": {"valve": True}},
        "must be an expression in quotes, got True",
    ),
    "nothing to set": (HIGH | {"set": {}}, r"set is empty; .* such as set = \{ valve = 0 \}"),
    "a threshold in another unit": (
        HIGH | {"when": "level > 125"},
        "'level > 125' compares level with 125 m, outside its range, 0 to 2 m, so it never changes",
    ),
    "a threshold below the range, on the left": (
        HIGH | {"when": "valve < 5 AND -1 < level"},
        "compares level with -1 m, outside its range, 0 to 2 m",
    ),
    "a number as condition": (
        HIGH | {"when": "level - 1.25"},
        r"'level - 1.25' must be true or false; .* such as 'level - 1.25 > 0.5'",
    ),
    "a condition without a tag": (HIGH | {"when": "1 > 0"}, "'1 > 0' names no tag"),
    "an empty condition": (HIGH | {"when": ""}, "when: "),
    "a condition over other rows": (HIGH | {"when": "level > avg(level)"}, "looks beyond its row"),
    "an operation that is not compiled": (
        HIGH | {"when": "round(level, 1) > 1.2"},
        "cannot be part of a plant model: .*write it with arithmetic",
    ),
    "no condition": ({"name": "a", "set": {"valve": 0}}, r"interlock 'a'.when is missing"),
    "an unknown key": (HIGH | {"release": "level < 1"}, "unknown key in .* 'release'"),
    "no name": (HIGH | {"name": ""}, "or one has no name"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_interlock_is_refused_at_reading(case: str) -> None:
    interlock, message = BAD[case]
    with pytest.raises(InputError, match=message) as caught:
        plant_log_from_dict(with_interlocks(interlock), "plant.toml")
    assert "\n" not in str(caught.value)
    assert "plant.toml" in str(caught.value)


def test_two_interlocks_need_two_names() -> None:
    with pytest.raises(InputError, match=r"two .* are called 'high level'"):
        plant_log_from_dict(with_interlocks(HIGH, HIGH), "plant.toml")


Part = tuple[str, Callable[[dict[str, np.ndarray]], np.ndarray]]
OPERATIONS = {">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal}


def comparison(name: str, operation: str, share: float) -> Part:
    low, high = RANGES[name]
    threshold = round(low + share * (high - low), 3)
    apply = OPERATIONS[operation]
    return f"{name} {operation} {threshold}", lambda c: apply(c[name], threshold)


def joined(word: str, first: Part, second: Part) -> Part:
    apply = np.logical_and if word == "AND" else np.logical_or
    return f"({first[0]} {word} {second[0]})", lambda c: apply(first[1](c), second[1](c))


def negated(part: Part) -> Part:
    return f"NOT ({part[0]})", lambda c: ~part[1](c)


CONDITION = st.recursive(
    st.builds(
        comparison, st.sampled_from(NAMES), st.sampled_from(list(OPERATIONS)), st.floats(0, 1)
    ),
    lambda parts: (
        st.builds(joined, st.sampled_from(["AND", "OR"]), parts, parts) | st.builds(negated, parts)
    ),
    max_leaves=4,
)
VALUE = st.builds(
    lambda number, how: {
        "number": (number, lambda c: np.full_like(c["valve"], number)),
        "cap": (f"least(valve, {number})", lambda c: np.minimum(c["valve"], number)),
        "share": (f"valve * {number} / 100", lambda c: c["valve"] * number / 100),
        "by level": (
            f"greatest({number} - 10 * level, 0)",
            lambda c: np.maximum(number - 10 * c["level"], 0),
        ),
    }[how],
    st.floats(0, 100).map(lambda x: round(x, 2)),
    st.sampled_from(["number", "cap", "share", "by level"]),
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(CONDITION, VALUE), min_size=1, max_size=3))
def test_an_interlock_is_the_function_that_it_says(
    drawn: list[tuple[Part, tuple[Any, Any]]],
) -> None:
    """Against the same conditions and values in NumPy, applied one after the other."""
    interlocks = [
        {"name": f"i{i}", "when": when, "set": {"valve": value}}
        for i, ((when, _), (value, _)) in enumerate(drawn)
    ]
    config = plant_log_from_dict(with_interlocks(*interlocks), "plant.toml")
    checked = checked_interlocks(
        [(one.name, one.when, one.values) for one in config.interlocks],
        config.of_role("observation", "setpoint"),
        config.of_role("manipulated"),
        "plant.toml",
    )
    declared = interlocks_of(checked, ["level", "setpoint"], ["valve"])
    assert hash(declared) == hash(interlocks_of(checked, ["level", "setpoint"], ["valve"]))
    random = np.random.default_rng(0)
    # A fourth decimal keeps every value off the thresholds, which have three.
    rows = {n: np.floor(random.uniform(*r, 300) * 1e3) / 1e3 + 5e-4 for n, r in RANGES.items()}
    obs = jnp.asarray([rows["level"], rows["setpoint"]], jnp.float32)
    result = np.asarray(declared(obs, jnp.asarray([rows["valve"]], jnp.float32)))[0]
    expected = dict(rows)
    for (_, holds), (_, value) in drawn:
        expected["valve"] = np.where(holds(expected), value(expected), expected["valve"])
    np.testing.assert_allclose(result, expected["valve"], rtol=1e-4, atol=1e-3)


def test_the_log_of_a_plant_with_its_interlock(locked: Tank, tmp_path: Path) -> None:
    dataset = converted(locked, tmp_path, HIGH)
    report = dataset_report(dataset)
    rows = dataset.transitions
    active = (np.asarray(rows.obs)[:, 0] > 1.25) & np.asarray(rows.mask)
    (entry,) = report["interlocks"]["entries"]
    assert 0 < entry["active"] == active.sum() < entry["rows"] == np.asarray(rows.mask).sum()
    assert entry["contradictions"] == []
    assert not any("interlock" in warning for warning in report["warnings"])
    line = (
        "interlock high level: valve = 0 % while level > 1.25; active in "
        f"{entry['active']} of {entry['rows']} rows"
    )
    assert line in re.sub(r"\s+", " ", report_text(report))
    declared = declared_plant(dataset)
    assert isinstance(declared.interlock, DeclaredInterlocks)
    assert declared.notes[-1].startswith("interlock 'high level' overrides every action of the")
    changed = declared.interlock(jnp.asarray([1.3, 1.0]), jnp.asarray([40.0]))
    kept = declared.interlock(jnp.asarray([1.2, 1.0]), jnp.asarray([40.0]))
    assert (float(changed[0]), float(kept[0])) == (0.0, 40.0)
    assert json.dumps(report["interlocks"])


def test_rows_that_contradict_an_interlock_are_counted(locked: Tank, tmp_path: Path) -> None:
    """Three rows in which the valve was open at a high level; 0.5 % of its range is allowed."""
    high = np.flatnonzero(locked.level > 1.25)
    locked.valve[high[[2, 5, 9]]] = 30.0
    locked.valve[high[3]] = 0.4
    dataset = converted(locked, tmp_path, HIGH)
    (one,) = interlock_activity(dataset, declared_interlocks(dataset))
    (found,) = one.contradictions
    assert (found.action, found.rows, found.logged, found.declared, found.largest) == (
        "valve", 3, 30.0, 0.0, 30.0,
    )  # fmt: skip
    assert np.asarray(dataset.transitions.obs)[found.first, 0] == np.float32(locked.level[high[2]])
    (warning,) = [w for w in dataset_report(dataset)["warnings"] if "interlock" in w]
    assert f"contradicts it in 3 of {one.active} rows in which its condition holds" in warning
    assert "where valve is 30 % and not 0 %" in warning
    assert "but the log contradicts it in 3 rows" in declared_plant(dataset).notes[-1]


def test_a_later_interlock_has_the_last_word(locked: Tank, tmp_path: Path) -> None:
    """The second sets what the first would have set otherwise; only then is the log right."""
    first = {"name": "open", "when": "level > 1.2", "set": {"valve": 100.0}}
    dataset = converted(locked, tmp_path, first, HIGH)
    opened, closed = interlock_activity(dataset, declared_interlocks(dataset))
    assert closed.contradictions == ()
    assert opened.contradictions[0].rows == opened.active - closed.active > 0
    interlock = declared_plant(dataset).interlock
    assert interlock is not None
    result = [float(interlock(jnp.asarray([x, 1.0]), jnp.asarray([50.0]))[0]) for x in (1.22, 1.3)]
    assert result == [100.0, 0.0]


def test_a_condition_that_always_holds_is_refused(locked: Tank, tmp_path: Path) -> None:
    dataset = converted(locked, tmp_path, HIGH | {"when": "level > 0.1"})
    message = r"plant.toml: \[\[interlock\]\] 'high level': its condition holds in all \d+ rows"
    assert any(re.match(message, warning) for warning in dataset_report(dataset)["warnings"])
    with pytest.raises(InputError, match=message):
        declared_plant(dataset)


def test_an_interlock_that_never_acted_is_a_note(tank: Tank, tmp_path: Path) -> None:
    report = dataset_report(converted(tank, tmp_path, HIGH | {"when": "level > 1.9"}))
    assert any("high level was never active" in note for note in report["notes"])
    assert not any("interlock" in warning for warning in report["warnings"])


def test_masked_rows_do_not_count(locked: Tank, tmp_path: Path) -> None:
    dataset = converted(locked, tmp_path, HIGH)
    rows = dataset.transitions
    mask = np.asarray(rows.mask) & (np.asarray(rows.obs)[:, 0] <= 1.25)
    masked = dataclasses.replace(dataset, transitions=rows._replace(mask=mask))
    (one,) = interlock_activity(masked, declared_interlocks(masked))
    assert (one.rows, one.active, one.episodes) == (mask.sum(), 0, 0)


def test_convert_warns_of_an_interlock_that_the_log_contradicts(
    command: Any, tank: Tank, tmp_path: Path
) -> None:
    exported(tank, tmp_path)
    table = '[[interlock]]\nname = "high level"\nwhen = "level > 1.25"\nset = { valve = 0.0 }\n'
    (tmp_path / "plant.toml").write_text(toml_of(WIDE) + table)
    out = command("convert", tmp_path / "plant.toml")
    assert "warning: interlock high level (valve = 0 % while level > 1.25)" in out


def test_the_draft_shows_an_interlock(tank: Tank, tmp_path: Path) -> None:
    """Its lines are a valid table once they are no comments and name tags of the log."""
    text = draft_plant_log(exported(tank, tmp_path) / "log.csv")
    lines = text.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("# [[interlock]]"))
    block = "\n".join(line.removeprefix("# ") for line in lines[begin : begin + 4])
    (table,) = tomllib.loads(block)["interlock"]
    table["when"] = table["when"].replace("level > 90", "LI_1_PV > 1.3")
    table["set"] = {"LC_1_OP": table["set"]["feed_valve"]}
    values = tomllib.loads(text)
    assert plant_log_from_dict({**values, "interlock": [table]}, "plant.toml").interlocks
    (tmp_path / "plant.toml").write_text(text)
    assert read_plant_log(tmp_path / "plant.toml").interlocks == ()


@pytest.mark.parametrize("tables", [[{"name": "a"}], ["a"], [{"name": "a", "when": 1, "set": 2}]])
def test_damaged_tables_of_a_dataset_are_refused(tank: Tank, tmp_path: Path, tables: Any) -> None:
    dataset = converted(tank, tmp_path)
    damaged = dataclasses.replace(dataset, attributes={**dataset.attributes, "interlocks": tables})
    with pytest.raises(InputError, match="is damaged; convert the log again"):
        declared_plant(damaged)
    assert "is damaged" in dataset_report(damaged)["interlocks"]["why"]
