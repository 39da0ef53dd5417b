"""The plants' pages, and the measured baselines that their tables show."""

import itertools
import json
import re
import sys

import numpy as np
import pytest

from baseline_table import ANCHORS, RESULTS
from neorl_envs import environment_names, make
from neorl_envs.blocks import named_constants
from neorl_envs.scoring import test_mode
from neorl_train.judging._evaluate import NEORL2_RETURNS
from plant_pages import ROOT, page_of, tables

PLANTS = environment_names()


@pytest.mark.parametrize("name", PLANTS)
def test_a_page_has_equations_sources_provenance_and_a_picture(name: str) -> None:
    env = make(name)
    package = ".".join(type(env).__module__.split(".")[:3])
    docstring = sys.modules[package].__doc__ or ""
    text = page_of(name).read_text()
    assert f"::: {package}" in text
    assert f"\n<!-- built: plant {name} -->\n" in text
    assert re.search(r"\$[^$]+\$|``[^`]+(=|<-)[^`]+``", docstring), "no equation"
    assert "ublished" in docstring or "Source:" in docstring
    assert re.search(r"[Oo]wn choice|\*Own|[Oo]ur own", docstring), "nothing is said to be our own"
    (picture,) = re.findall(r"!\[A run under [^\]]+\]\(([^)]+)\)", tables(name))
    assert (page_of(name).parent / picture).resolve().stat().st_size > 1000
    for constant, declared, _ in named_constants(env.constants):
        assert declared.source, constant


def test_the_tables_say_what_the_plant_declares() -> None:
    text = tables("ChemicalReactor-v0")
    env = make("ChemicalReactor-v0")
    for channel in (*env.spec.obs, *env.spec.action, *env.spec.cost):
        assert f"| {channel.name} | {channel.unit} |" in text
    for policy in (*env.tunings(), "random", "best constant"):
        assert f"{policy}" in text


def test_the_anchors_are_those_of_the_baselines() -> None:
    """Row N11: scores count between the stored anchors of each plant."""
    stored = json.loads(ANCHORS.read_text())["plants"]
    results = [json.loads(path.read_text()) for path in RESULTS.glob("*.json")]
    assert {result["plant"] for result in results} == {*stored}
    for result in results:
        rows = {row["policy"]: row["score"] for row in result["rows"]}
        ends = stored[result["plant"]]
        assert (ends["random"], ends["reference"]) == (rows["random"], rows[result["reference"]])
        assert result["episodes"] >= 100
        assert result.get("test_mode") == test_mode(result["plant"])
        assert f"{result['reference']}, test mode" in rows
        # What makes it a task: the reference beats random and every constant action, clearly.
        beaten = max(rows["random"], rows["best constant"])
        assert rows[result["reference"]] > beaten + 3 * ends["reference_error"]


@pytest.mark.parametrize("name", environment_names())
def test_random_medium_and_expert_rank_and_no_constant_beats_the_expert(name: str) -> None:
    """95 % intervals of the scores are disjoint: uniform, the ordinary tuning, the reference."""
    result = json.loads((RESULTS / f"{name}.json").read_text())
    rows = {row["policy"]: row for row in result["rows"]}
    env = make(name)
    order = [rows["random"], rows[next(iter(env.tunings()))], rows[env.reference]]
    for worse, better in itertools.pairwise(order):
        apart = 1.96 * (worse["score_error"] + better["score_error"])
        assert better["score"] > worse["score"] + apart, (worse["policy"], better["policy"])
    constant, best = rows["best constant"], rows[env.reference]
    assert constant["candidates"] >= 200  # of a search, not of a few guesses
    error = np.hypot(constant["score_error"], best["score_error"])
    assert best["score"] > constant["score"] + 2 * error


@pytest.mark.parametrize("task", ["DMSD", "Pipeline"])
def test_returns_lie_where_the_benchmark_published_them(task: str) -> None:
    """Row N05: random play and our reference lie at the benchmark's poor and good policies.

    Those are policies and no bounds: our reference of Pipeline is 4 % of their distance above.
    """
    rows = json.loads((RESULTS / f"{task}-v0.json").read_text())["rows"]
    returns = {row["policy"]: row["return"] for row in rows}
    poor, good = NEORL2_RETURNS[task]
    assert poor < returns["random"] < poor + 0.2 * (good - poor)
    assert good - 0.05 * (good - poor) < returns[make(f"{task}-v0").reference]
    assert returns[make(f"{task}-v0").reference] < good + 0.05 * (good - poor)


@pytest.mark.parametrize("name", environment_names())
def test_the_mode_of_test_tells_and_the_reference_stands_it(name: str) -> None:
    """Who ignores the change loses visibly; the reference keeps its limits in most episodes."""
    result = json.loads((RESULTS / f"{name}.json").read_text())
    rows = {row["policy"]: row for row in result["rows"]}
    ordinary = next(iter(make(name).tunings()))
    modes = [rows[f"{tuning}, test mode"] for tuning in (ordinary, result["reference"])]
    assert max(row["lost"] / max(row["lost_error"], 1e-9) for row in modes) > 4
    assert min(modes[1]["kept"].values(), default=1.0) >= 0.5
    names = [row["policy"] for row in result["rows"]]
    drawn = any(constant.spread for _, constant, _ in named_constants(make(name).constants))
    assert (f"{result['reference']}, shifted" in names) == drawn  # else it repeats the row above


def test_the_tests_that_a_page_names_exist() -> None:
    page = ROOT / "docs/results/plant-evidence.md"
    file, named = "", 0
    for path, test in re.findall(r"`([\w/.-]+\.py)?(?:::(\w+))?`", page.read_text()):
        file = path or file
        text = (ROOT / file).read_text() if file else ""
        assert not path or text, path
        if test:
            named += 1
            assert f"def {test}(" in text, f"{file}::{test}"
    assert named > 15


@pytest.mark.nightly
@pytest.mark.parametrize("name", PLANTS)
def test_a_baseline_is_measured_again(name: str) -> None:
    from baseline_table import _differs, measured, stored_constant

    path = RESULTS / f"{name}.json"
    assert not _differs(path, measured(name, 30, stored_constant(path)))
