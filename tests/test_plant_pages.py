"""The plants' pages, their diagrams, and the measured baselines that their tables show."""

import importlib.util
import itertools
import json
import re
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from baseline_table import ANCHORS, RESULTS
from neorl_envs import environment_names, make
from neorl_envs.blocks import named_constants
from neorl_envs.scoring import test_mode
from neorl_train.judging import NEORL2_RETURNS
from plant_diagrams import diagram, drawn, explained, named, tags
from plant_pages import ROOT, baselines, gallery, overview, page_of, role

PLANTS = environment_names()


@pytest.mark.parametrize("name", PLANTS)
def test_a_page_has_equations_sources_provenance_and_a_picture(name: str) -> None:
    env = make(name)
    package = ".".join(type(env).__module__.split(".")[:3])
    docstring = sys.modules[package].__doc__ or ""
    text = page_of(name).read_text()
    assert f"::: {package}" in text
    assert f"\n<!-- built: plant {name} -->\n" in text
    assert f"\n<!-- built: plant_baselines {name} -->\n" in text
    assert re.search(r"\$[^$]+\$|``[^`]+(=|<-)[^`]+``", docstring), "no equation"
    assert "ublished" in docstring or "Source:" in docstring
    assert re.search(r"[Oo]wn choice|\*Own|[Oo]ur own", docstring), "nothing is said to be our own"
    (picture,) = re.findall(r"!\[A run under [^\]]+\]\(([^)]+)\)", overview(name))
    assert (page_of(name).parent / picture).resolve().stat().st_size > 1000
    for constant, declared, _ in named_constants(env.constants):
        assert declared.source, constant


def channels_of(name: str) -> dict[str, list[str]]:
    spec = make(name).spec
    return {
        "measured": [channel.name for channel in spec.obs],
        "manipulated": [channel.name for channel in spec.action],
    }


@pytest.mark.parametrize("name", PLANTS)
def test_a_diagram_has_every_channel_of_the_plant_in_its_colour(name: str) -> None:
    channels = channels_of(name)
    (svg,) = ElementTree.fromstring(diagram(name, *channels.values()))
    shown: dict[str, list[str]] = {kind: [] for kind in channels}
    for group in svg.iter("{http://www.w3.org/2000/svg}g"):
        words = group.find("{*}text").text.replace(" … ", "..")
        for kind in group.get("class").split()[1:]:
            shown[kind] += named(words, channels[kind])
    assert {kind: sorted(names) for kind, names in shown.items()} == {
        kind: sorted(names) for kind, names in channels.items()
    }
    width, height = (float(word) for word in svg.get("viewBox").split()[2:])
    placed = tags(name)
    for tag, left, middle, wide in placed:
        assert left >= 0, tag
        assert left + wide <= width, tag
        assert 10 <= middle <= height - 10, tag
    for (one, x, y, wide), (other, x2, y2, wide2) in itertools.combinations(placed, 2):
        apart = abs(y - y2) > 20 or x + wide < x2 or x2 + wide2 < x
        assert apart, f"{one} and {other} overlap"


@pytest.mark.parametrize("name", PLANTS)
def test_a_hundred_words_say_what_is_hard_and_which_controller_runs_today(name: str) -> None:
    plant, story = make(name), " ".join(drawn()[name]["story"].split())
    today = next(iter(plant.tunings()))
    assert story in " ".join(overview(name).split())
    assert len(story.split()) <= 100
    assert "What makes it hard is" in story
    assert f"Today `{today}` " in story
    assert f"The reference is `{plant.reference}`" in story


@pytest.mark.parametrize("name", PLANTS)
def test_every_channel_is_explained_and_nothing_else(name: str) -> None:
    channels = channels_of(name)
    for kind, names in channels.items():
        texts = explained(name, kind, names)
        assert all(len(text) > 3 for text in texts.values())
        for words in drawn()[name].get(kind, {}):
            assert named(words, names), words
    for words in drawn()[name].get("channels", {}):
        assert any(named(words, names) for names in channels.values()), words


def test_the_tables_say_what_the_plant_declares() -> None:
    text = overview("ChemicalReactor-v0")
    env = make("ChemicalReactor-v0")
    for channel in (*env.spec.obs, *env.spec.action):
        assert f"| `{channel.name}` | {channel.unit} |" in text
    for cost in env.spec.cost:
        assert f"| {cost.name} | {cost.unit} |" in text
    for policy in (*env.tunings(), "random", "best constant"):
        assert f"{policy}" in baselines("ChemicalReactor-v0")
    assert "| `T_zone_1` to `T_zone_6` | degC | 0 to 1200 |" in overview("SteelAnnealing-v0")


def test_the_role_of_a_channel_follows_the_declarations() -> None:
    reactor, tank = make("ChemicalReactor-v0"), make("CSTR-v0")
    assert role(reactor, "T_R") == "kept from 361.15 to 365.15"
    assert role(reactor, "P") == "at most 3.5"
    assert role(reactor, "T_S") == ""
    assert role(tank, "C_A") == "follows `C_A_SP`"
    assert role(tank, "C_A_SP") == "setpoint"
    assert role(make("WaterTreatment-v0"), "demand") == "given from outside"


def test_the_gallery_has_a_diagram_of_every_plant_and_a_link_to_its_page() -> None:
    assert set(drawn()) == set(PLANTS), "tools/pages/plant_diagrams.toml describes each plant"
    text = gallery()
    linked = re.findall(r"(?m)^## \[(\w+)\]\((\w+\.md)\)$", text)
    assert [f"{name}-v0" for name, _ in linked] == list(PLANTS)
    assert {page for _, page in linked} == {page_of(name).name for name in PLANTS}
    assert text.count("<svg ") == len(PLANTS)


def test_the_anchors_are_those_of_the_baselines() -> None:
    """Row N11: scores count between the stored anchors of each plant."""
    stored = json.loads(ANCHORS.read_text())["plants"]
    results = [json.loads(path.read_text()) for path in RESULTS.glob("*.json")]
    assert {result["plant"] for result in results} == {*stored}
    assert {*stored} == {*PLANTS}, "measure with tools/studies/tables/baseline_table.py NAME"
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
def test_a_page_has_the_ends_of_the_return_and_what_it_ranks_wrong(name: str) -> None:
    """Row N05: least and largest return of every plant, random and reference, on its page.

    By its return alone, random play beats the ordinary tuning on ChemicalReactor, and nowhere else.
    """
    result = json.loads((RESULTS / f"{name}.json").read_text())
    returns = {row["policy"]: row["return"] for row in result["rows"]}
    ordinary, best = next(iter(make(name).tunings())), result["reference"]
    ends = f"random actions, {returns['random']:.5g} (score "
    assert ends in baselines(name)
    assert f"of {best}, {returns[best]:.5g} (score " in baselines(name)
    assert returns["random"] < returns[best]
    assert returns[ordinary] < returns[best]
    misleads = name == "ChemicalReactor-v0"
    assert (returns["random"] > returns[ordinary]) == misleads
    assert ("By its return alone, random" in baselines(name)) == misleads


def test_the_rewards_that_the_speed_of_a_source_includes_are_its_own() -> None:
    """Row N28: the sources step with their rewards: NeoRL-2's recorded ones, to the bit."""
    path = ROOT / "tools/studies/benchmarks/_plant_peers.py"
    spec = importlib.util.spec_from_file_location("_plant_peers", path)
    assert spec is not None
    assert spec.loader is not None
    peers = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = peers  # its dataclasses look themselves up
    spec.loader.exec_module(peers)
    with np.load(ROOT / "packages/neorl-envs/tests/plants/pipeline/neorl2.npz") as recorded:
        obs, reward = recorded["obs"], recorded["reward"]
    assert [peers.pipeline_reward({"next_obs": row}) for row in obs] == reward.tolist()
    # Errors of 0.5 and -0.25: -log(0.51) - log(0.26), computed by hand.
    seen = np.array([1.0, -0.75, 0.0, 0.0, 0.5, -0.5])
    assert peers.double_mass_reward({"next_obs": seen}) == pytest.approx(2.0204182, abs=1e-6)


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
