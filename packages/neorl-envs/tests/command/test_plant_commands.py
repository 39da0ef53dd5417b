"""The commands about plants: describe, render, check, and all of them on a plant from outside."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from neorl_core import spec_from_dict
from neorl_envs import make, read_dataset
from neorl_envs.plants import register_plant
from neorl_envs.testing import Finding


@pytest.fixture
def own_plants(tank: Any, vessel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of plants that nobody registered; one bears the name of one of ours."""
    module: Any = ModuleType("own_plants")
    module.Tank, module.Vessel = tank, type("Vessel", (type(vessel),), {"name": "DMSD-v0"})
    monkeypatch.setitem(sys.modules, "own_plants", module)


def test_describe(command: Any) -> None:
    text = command("describe", "ChemicalReactor-v0", "--constants")
    for word in ("T_adiab_hat", "at most", "(reference)", "kJ/kg", "Lucia"):
        assert word in text
    for line in (
        "T_R      K    361.15 to 365.15  adds 0.833333 to the cost temperature per unit beyond",
        "P        bar  at most 5         ends the episode",
        "temperature  K min  at most 20 per episode  penalty 0.75 points per K min",
    ):
        assert line in text
    document = json.loads(command("describe", "ChemicalReactor-v0", "--json", "--constants"))
    env = make("ChemicalReactor-v0")
    assert document["format"] == "neorl-plant-description"
    assert spec_from_dict(document["spec"]) == env.spec
    assert document["penalty_weights"] == env.penalty_weights()
    assert document["limits"][2] == {
        **{"quantity": "P", "unit": "bar", "low": None, "high": 3.5},
        **{"cost": "pressure", "factor": 1.0, "trip": False},
    }
    assert all({"name", "value", "unit", "source"} == set(row) for row in document["constants"])


def test_render(command: Any, tank: Any) -> None:
    register_plant("Tank-v0", tank)
    for policy in ("nervous", "random"):
        out = command("render", "Tank-v0", "--out", f"{policy}.png", "--policy", policy)
        assert "25 steps, return" in out
    pictures = [np.asarray(Image.open(f"{policy}.png")) for policy in ("nervous", "random")]
    assert pictures[0].shape == pictures[1].shape
    assert (pictures[0] != pictures[1]).any()
    command("render", "Tank-v0", "--out", "run.gif")
    with Image.open("run.gif") as gif:
        assert gif.n_frames == 25  # one a step, where there are few
        first = np.asarray(gif.convert("RGB"))
        gif.seek(24)
        assert (first != np.asarray(gif.convert("RGB"))).any()


@pytest.mark.usefixtures("own_plants")
def test_a_plant_that_nobody_registered_is_named_by_its_module(
    command: Any, tank: Any, tmp_path: Path
) -> None:
    output = command("describe", "own_plants:Vessel", "--constants")
    assert "period 1 s, at most 10 steps" in output
    assert "area  2 m2  own choice" in output
    assert "25 steps, return" in command("render", "own_plants:Tank", "--out", "run.png")
    assert (tmp_path / "run.png").is_file()
    score = ["score", "own_plants:Vessel", "--episodes", "4"]
    output = json.loads(command(*score, "--shift", "area", "2", "--json"))
    scores = (output["train"]["score"], output["test"]["score"])
    assert scores == pytest.approx((-12.75, -11.375))  # 1 + 0.1 t / area, summed over ten steps
    assert "normalised" not in output["train"]  # the anchors of that name are of another plant
    register_plant("Tank-v0", tank)
    for name in ("own_plants:Tank", "Tank-v0"):
        command("collect", name, "--steps", "60", "--out", f"{name}.h5")
    hashes = {read_dataset(path).content_hash for path in tmp_path.glob("*.h5")}
    assert len(list(tmp_path.glob("*.h5"))) == 2
    assert len(hashes) == 1
    message = "for Tank-v0; say which constants differ and by what factor: give --shift NAME FACTOR"
    assert message in command.refused("score", "own_plants:Tank")


BAD = {
    "plant": (["render", "Tonk-v0", "--out", "a.png"], "unknown environment 'Tonk-v0'"),
    "policy": (
        ["render", "Tank-v0", "--out", "a.png", "--policy", "nervus"],
        "unknown policy 'nervus'; did you mean 'nervous'?",
    ),
    "kind": (["render", "Tank-v0", "--out", "a.jpg"], "--out must end with .png or .gif"),
    "folder": (["render", "Tank-v0", "--out", "no/a.png"], "no folder no; create it first"),
    "seed": (
        ["render", "Tank-v0", "--out", "a.png", "--seed", "-1"],
        "--seed must be an integer in [0,",
    ),
    "preset": (["render", "Tank-v0", "--out", "a.png", "--preset", "x"], "preset must be 'plant'"),
    "description": (["describe", "Tank-v1"], "did you mean 'Tank-v0'?"),
    "module": (["check", "no_such_module:Tank"], "no_such_module:Tank cannot be made: ModuleNot"),
    "class": (["check", "mine:Tonk"], "mine:Tonk cannot be made: AttributeError"),
    "name": (["check", "Tnk-v0"], "one of your own is MODULE:CLASS"),
    "name of a log": (["collect", "Tnk-v0", "--out", "a.png"], "one of your own is MODULE:CLASS"),
    "module of a log": (["collect", "nowhere:Tank", "--out", "a.png"], "nowhere:Tank cannot be"),
    "parts": (
        ["describe", "mine:Half"],
        "mine:Half is not a plant: TypeError: a plant needs spec,",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(command: Any, tank: Any, tmp_path: Path, case: str) -> None:
    register_plant("Tank-v0", tank)
    (tmp_path / "mine.py").write_text("class Half:\n    name = 'Half-v0'\n")
    words, message = BAD[case]
    error = command.refused(*words)
    assert message in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "a.png").exists()


def test_an_existing_picture_is_kept(command: Any, tank: Any, tmp_path: Path) -> None:
    register_plant("Tank-v0", tank)
    (tmp_path / "a.png").write_text("mine")
    command.refused("render", "Tank-v0", "--out", "a.png")
    assert (tmp_path / "a.png").read_text() == "mine"


def test_check_says_which_laws_are_broken(command: Any, tank: Any) -> None:
    register_plant("Tank-v0", tank)
    code, result, error = command.run("check", "Tank-v0")
    assert code == 2
    assert "FAILED  a wrong shape is refused: an action of shape (2,) is accepted" in result
    assert "ok      finite under hostile actions" in result
    start, refusal = error.splitlines()
    assert start.startswith("check, episodes of Tank-v0 are run, then ")
    assert re.search(r"breaks 1 of \d+ laws: a wrong shape is refused", refusal)


def test_findings_are_printed_as_json(
    command: Any, tank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_plant("Tank-v0", tank)
    broken = Finding("a_law", "it is broken")
    monkeypatch.setattr("neorl_envs._command.check.check_environment", lambda *_, **__: (broken,))
    code, result, error = command.run("check", "Tank-v0", "--json")
    assert code == 2
    finding = {"law": "a_law", "fault": "it is broken", "unchecked": ""}
    assert json.loads(result)["findings"] == [finding]
    assert "breaks 1 of 1 laws: a law" in error
