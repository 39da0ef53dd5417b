"""The nearest name, the error of an unknown one, and the heads of documents."""

import json
import re
from pathlib import Path

import pytest

from neorl_core import InputError
from neorl_core.infrastructure import (
    check_head,
    head,
    install_line,
    nearest_name,
    unknown_name,
)


class ReadError(InputError):
    """The error of a package that has its own."""


@pytest.mark.parametrize(
    ("name", "near"),
    [("ipl", "iql"), ("TD3-BC", "td3-bc"), ("td3bc", "td3-bc"), ("dreamer", None), ("", None)],
)
def test_the_nearest_name(name, near):
    assert nearest_name(name, ["bc", "td3-bc", "iql"]) == near
    assert nearest_name(name, []) is None


def test_a_version_that_all_names_bear_makes_none_of_them_near():
    assert nearest_name("TankLevel-v0", ["RobotAssembly-v0", "CSTR-v0"]) is None
    assert nearest_name("cstr", ["RobotAssembly-v0", "CSTR-v0"]) == "CSTR-v0"


def test_the_nearest_name_keeps_its_letters():
    assert nearest_name("plant-a", ["Plant-A", "other"]) == "Plant-A"


def test_an_unknown_name_is_an_error_that_lists_the_known():
    result = unknown_name("plant", "reacter", iter(["reactor", "column"]), ReadError)
    assert type(result) is ReadError
    assert isinstance(result, InputError)
    assert isinstance(result, ValueError)
    assert str(result) == "unknown plant 'reacter'; did you mean 'reactor'? known: reactor, column"
    assert str(unknown_name("plant", "x", [])) == "unknown plant 'x'; known: none"


def test_a_head_comes_back_from_json():
    document = {**head("run", 2), "name": "a", "rows": [1]}
    assert list(document) == ["format", "version", "name", "rows"]
    read = json.loads(json.dumps(document))
    assert check_head(read, "run", 2, "run.json") == {"name": "a", "rows": [1]}
    assert read == document


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([1], "run.json holds a list, expected a JSON object of format neorl-run; is it the right"),
        (None, "run.json holds a NoneType, expected a JSON object"),
        ({"version": 1}, "run.json has format None, expected 'neorl-run'; is it the right file?"),
        ({**head("verdict", 1)}, "run.json has format 'neorl-verdict', expected 'neorl-run'"),
        (head("run", 2), "has version 2 of neorl-run, this version of neorl reads 1; read it with"),
        ({"format": "neorl-run"}, "run.json has version None of neorl-run"),
        ({"format": "neorl-run", "version": True}, "run.json has version True of neorl-run"),
        ({"format": "neorl-run", "version": 1.0}, "run.json has version 1.0 of neorl-run"),
        ({"format": "neorl-run", "version": "1"}, "run.json has version '1' of neorl-run"),
    ],
)
def test_a_wrong_head_is_refused_with_its_source(document, words):
    with pytest.raises(ReadError, match=re.escape(words)):
        check_head(document, "run", 1, "run.json", ReadError)
    with pytest.raises(InputError):
        check_head(document, "run", 1, "run.json")


def test_an_extra_is_installed_from_its_folder_in_the_clone() -> None:
    clone = Path(__file__).resolve().parents[4]
    line = install_line("neorl-core[testing]")
    (place,) = re.findall(r'pip install "(.+)\[testing\]"$', line)
    assert (clone / place / "pyproject.toml").is_file()
