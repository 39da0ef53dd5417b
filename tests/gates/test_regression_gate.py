"""The gate notices a slow-down that is put into real work, and lets the same work pass."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regression


def _work() -> None:
    sum(i * i for i in range(40_000))


def _rounds(library: Callable[[], None], unit: str) -> dict:
    """Both variants in turn, by processor time: other jobs on the machine are not in it."""
    rounds: dict[str, list[float]] = {"bare": [], "library": []}
    for name, run in [("bare", _work), ("library", library)] * 7:
        begun = time.process_time()
        run()
        seconds = time.process_time() - begun
        rounds[name].append(1 / seconds if "per second" in unit else seconds)
    cases = {"iql": {name: {"rounds": one} for name, one in rounds.items()}}
    return {"benchmark": "gate", "case": {"rows": 160}, "unit": unit, "cases": cases}


@pytest.mark.parametrize("unit", ["seconds", "steps per second"])
def test_an_injected_slow_down_is_caught_and_the_same_work_passes(
    unit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Row N37: an injected slow-down is caught."""

    def slowed() -> None:
        for _ in range(3):  # thrice the work
            _work()

    for name, library in (("stored", _work), ("same", _work), ("slowed", slowed)):
        (tmp_path / f"{name}.json").write_text(json.dumps(_rounds(library, unit)))
    given = ["gate", "--stored", str(tmp_path / "stored.json"), "--tolerance", "0.5", "--fresh"]
    assert regression.main([*given, str(tmp_path / "same.json")]) == 0
    assert "ok      cases iql library / bare" in capsys.readouterr().out
    assert regression.main([*given, str(tmp_path / "slowed.json")]) == 1
    assert "SLOWER  cases iql library / bare" in capsys.readouterr().out


def test_a_stored_result_that_is_twice_as_slow_is_caught(tmp_path: Path) -> None:
    stored = json.loads((regression.RESULTS / "training_loop.json").read_text())
    for case in stored["cases"].values():
        case["library"]["rounds"] = [one / 2 for one in case["library"]["rounds"]]
    fresh = tmp_path / "fresh.json"
    fresh.write_text(json.dumps(stored))
    assert regression.main(["training_loop", "--fresh", str(fresh)]) == 1
    path = regression.RESULTS / "training_loop.json"
    assert regression.main(["training_loop", "--fresh", str(path)]) == 0


@pytest.mark.parametrize("name", ["learners", "core"])
def test_a_slow_down_beside_the_code_of_others_is_caught(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cases in a list, and peers that have names of their own."""
    path = regression.RESULTS / f"{name}.json"
    assert regression.main([name, "--fresh", str(path)]) == 0
    same = capsys.readouterr().out.splitlines()
    fresh = tmp_path / "fresh.json"
    fresh.write_text(json.dumps(_with_slow_ours(json.loads(path.read_text()))))
    assert regression.main([name, "--fresh", str(fresh)]) == 1
    slower = capsys.readouterr().out.splitlines()
    assert len(slower) == len(same) > 1
    assert all(line.startswith("SLOWER") and "ours / " in line for line in slower)
    assert len({line.partition(":")[0] for line in slower}) == len(slower)


def _with_slow_ours(result: Any) -> Any:
    """The result, had our variants taken thrice as long."""
    if isinstance(result, list):
        return [_with_slow_ours(part) for part in result]
    if not isinstance(result, dict):
        return result
    return {
        key: {**part, "rounds": [3 * one for one in part["rounds"]]}
        if key == "ours" and "rounds" in part
        else _with_slow_ours(part)
        for key, part in result.items()
    }


def test_noise_within_the_tolerance_passes() -> None:
    rng = np.random.default_rng(1)
    before, now = (1 + 0.05 * rng.normal(size=7) for _ in range(2))
    assert not regression.change("a", before, 1.1 * now).is_slower(0.2)
    assert regression.change("a", before, 1.5 * now).is_slower(0.2)
    doubtful = regression.change("a", np.array([1.0, 3.0]), np.array([1.5, 3.5]))
    assert not doubtful.is_slower(0.2)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"unit": "minutes"}, "unit is 'minutes'"),
        ({"case": {"rows": 1}}, "case is"),
        ({"cases": {}}, "lacks cases iql library / bare"),
    ],
)
def test_what_cannot_be_compared_is_named(
    changed: dict, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = {"bare": {"rounds": [1.0, 2.0]}, "library": {"rounds": [1.0, 2.0]}}
    stored = {"benchmark": "gate", "case": {}, "unit": "seconds", "cases": {"iql": one}}
    for name, result in (("stored", stored), ("fresh", {**stored, **changed})):
        (tmp_path / f"{name}.json").write_text(json.dumps(result))
    given = ["gate", "--stored", str(tmp_path / "stored.json")]
    assert regression.main([*given, "--fresh", str(tmp_path / "fresh.json")]) == 2
    assert fault in capsys.readouterr().err
    assert regression.main(["nowhere"]) == 2
    assert "no such result; there are affine" in capsys.readouterr().err
