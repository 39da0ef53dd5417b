"""Sites that search gains together: on scores with a known best, and by the command."""

import json
import subprocess
import sys
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import ALGORITHMS
from neorl_agents.retuning import SearchSettings
from neorl_core import Channel, InputError, Spec
from neorl_core.control import StateFeedback
from neorl_train._command.subcommands.federate import read_federation
from neorl_train.federation import (
    Fault,
    Federation,
    FederationConfig,
    GossipConfig,
    MessagesConfig,
    PrivacyConfig,
    RetuningSite,
    RoundStart,
    federate_retuning,
)

SPEC = Spec(
    (Channel("level", "m", -30.0, 30.0),), (Channel("valve", "%", -50.0, 50.0),), (), 1.0, 40
)
BEST = np.asarray([1.2, -0.8])
"""Changes around which those lie that are best for each site."""
SPREAD = 0.3
SEARCH = SearchSettings(population=12, generations=30)
NAMES = tuple("abcdef")
OPTIMA = [BEST + SPREAD * np.random.default_rng([3, i]).normal(size=2) for i in range(len(NAMES))]
FARTHEST = max(float(np.linalg.norm(one - BEST)) for one in OPTIMA)
"""Distance of the most unusual site from the others."""


def controller():
    """A controller with one gain and one bias."""
    low, high = (jnp.full(1, x) for x in (-50.0, 50.0))
    return StateFeedback(jnp.full((1, 1), 0.3), jnp.zeros(1), jnp.zeros(1), low, high)


class Known(RetuningSite):
    """A site whose scores are distances from a best change of its own."""

    def __init__(self, number, settings, faults):
        rows = SimpleNamespace(start=np.zeros(100), outcome=np.zeros((100, 1)))
        plants = SimpleNamespace(model=SimpleNamespace(spec=SPEC), rows=rows)
        super().__init__(NAMES[number], plants, controller(), settings, SEARCH, faults=faults)
        self.number = number

    def scores(self, changes, round_):
        return -(1000.0 ** (self.number % 2)) * ((changes - OPTIMA[self.number]) ** 2).sum(axis=1)


def made(settings, faults=()):
    return [Known(i, settings, faults) for i in range(len(NAMES))]


def settings_of(rule="mean", groups=1, byzantine=0, **options):
    secure = options.pop("secure_sum", True)
    options = {"method": "retuning", "rounds": 30, "weights": "equal", **options}
    return Federation(
        FederationConfig(rule=rule, byzantine=byzantine, **options),
        messages=MessagesConfig(secure_sum=secure, groups=groups),
    )


MEDIAN = settings_of("median", groups=3, byzantine=1)


@pytest.mark.parametrize("settings", [settings_of(), settings_of(secure_sum=False), MEDIAN])
def test_sites_find_changes_that_are_good_for_all(settings):
    """The scores of every other site are a thousand times larger, and weigh no more."""
    found = federate_retuning(made(settings), settings, SEARCH)
    assert len(found.names) == 2
    assert all(record.counted for record in found.records)
    assert np.linalg.norm(found.changes - BEST) < SPREAD


def test_a_false_site_moves_the_median_of_groups_no_further_and_a_mean_far():
    fault = (Fault("f", "flipped", factor=20.0),)
    distances = {}
    for name, settings in {"median": MEDIAN, "mean": settings_of()}.items():
        sites = made(settings, fault)
        found = federate_retuning(sites, settings, SEARCH, faults=fault)
        distances[name] = np.linalg.norm(found.changes - BEST)
    assert distances["median"] < FARTHEST
    assert distances["mean"] > 3 * FARTHEST


def test_masked_ranks_sum_to_what_they_hide():
    population = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    start, scale = RoundStart(3, population.ravel(), NAMES), 2.0**24
    masked, plain = made(settings_of()), made(settings_of(secure_sum=False))
    published = {site.name: site.pairings.public for site in masked}
    total, ranks = np.zeros(12, np.uint32), []
    for hidden, shown in zip(masked, plain, strict=True):
        hidden.pairings.exchange_keys(published)
        assert hidden.work(start)().arrays == ()
        (term,) = hidden.mask(start, share=1 / 6, largest=1.0, scale=scale).arrays
        total += term
        (sent,) = shown.work(start)().arrays
        np.testing.assert_allclose(np.sort(sent), np.linspace(-0.5, 0.5, 12), atol=1e-7)
        distance = ((population - OPTIMA[shown.number]) ** 2).sum(axis=1)
        assert np.argmax(sent) == np.argmin(distance)
        assert np.abs(term.astype(np.int32) / scale - sent / 6).max() > 1
        ranks.append(sent)
    np.testing.assert_allclose(total.astype(np.int32) / scale, np.mean(ranks, axis=0), atol=1e-6)


def test_dead_and_late_sites_are_named_and_the_others_go_on():
    faults = (Fault("b", "dead", first=1, last=2), Fault("c", "late", first=4, last=4))
    found = federate_retuning(made(MEDIAN, faults), MEDIAN, SEARCH, faults=faults)
    assert [found.records[i].outcomes["b"] for i in (0, 1, 3)] == ["answered", "dead", "answered"]
    assert found.records[4].outcomes["c"] == "late"
    assert np.linalg.norm(found.changes - BEST) < 2 * SPREAD


def test_a_search_that_no_round_fed_is_an_error():
    faults = tuple(Fault(name, "dead") for name in NAMES)
    with pytest.raises(InputError, match="no round has been completed since round 0: a: dead"):
        federate_retuning(made(MEDIAN, faults), MEDIAN, SEARCH, faults=faults, print_line=str)


def test_controllers_with_other_parameters_are_refused():
    sites = made(MEDIAN)
    sites[2].parameters = sites[2].parameters[:1]
    with pytest.raises(InputError, match=r"controller of site c is tuned by .*, that of site a"):
        federate_retuning(sites, MEDIAN, SEARCH)


NO_USE = {
    "privacy": ({"privacy": PrivacyConfig(noise_multiplier=1.0)}, {}),
    "gossip": ({"gossip": GossipConfig()}, {"rule": "gossip"}),
    "messages.fraction": ({"messages": MessagesConfig(fraction=0.5)}, {}),
    "federation.proximal": ({}, {"proximal": 0.1}),
}


@pytest.mark.parametrize("name", NO_USE)
def test_settings_of_training_are_refused(name):
    sections, options = NO_USE[name]
    settings = Federation(FederationConfig(method="retuning", **options), **sections)
    with pytest.raises(InputError, match=f"{name}.* is a setting of training"):
        federate_retuning(made(settings), settings, SEARCH)


FILE = """
[federation]
method = "retuning"
rounds = 2
rule = "median"
byzantine = 1
[messages]
secure_sum = true
groups = 3
[data]
source = "CSTR-v0"
steps = 1500
[retuning]
{controller}
updates = 20
generations = 2
[evaluation]
starts = 4
[sites.a]
[sites.b.data]
seed = 1
[sites.c.data]
seed = 2
[sites.d.data]
seed = 3
[sites.e.data]
seed = 4
[sites.f.data]
seed = 5
"""


def plan_of(folder, *words, controller='controller = "PI"'):
    file = folder / "sites.toml"
    file.write_text(FILE.format(controller=controller))
    return read_federation([str(file), *words], ALGORITHMS)[1]


def test_sites_that_retune_train_no_learner(tmp_path):
    plan = plan_of(tmp_path)
    assert plan.retunes
    (tmp_path / "rehearsed.toml").write_text(
        (tmp_path / "sites.toml").read_text() + '[[faults]]\nsite = "f"\nkind = "flipped"\n'
    )
    rehearsed = read_federation([str(tmp_path / "rehearsed.toml")], ALGORITHMS)[1]
    assert rehearsed.faults == (Fault("f", "flipped"),)
    assert {site.training.algorithms for site in plan.sites.values()} == {()}


def test_retuning_needs_a_controller_and_takes_no_learner(tmp_path):
    with pytest.raises(InputError, match="site a names no controller to retune; name the one"):
        plan_of(tmp_path, controller="")
    with pytest.raises(InputError, match=r"training.algorithms names iql, .* leave it out"):
        plan_of(tmp_path, "--training.algorithms", "iql")


@pytest.mark.nightly
def test_every_site_gets_a_run_of_its_own_and_a_second_call_repeats_nothing(tmp_path):
    plan_of(tmp_path)
    command = [sys.executable, "-m", "neorl_train", "federate"]
    done = subprocess.run(
        [*command, "sites.toml", "--quiet"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "gains searched together by median, 2 rounds" in done.stdout
    folder = tmp_path / "federations/0001"
    common = json.loads((folder / "common.json").read_text())
    assert common["parameters"] == ["gain of T_c", "integral time of T_c"]
    assert np.isfinite(common["changes"]).all()
    assert np.any(common["changes"])
    result = json.loads((folder / "federation.json").read_text())
    assert set(result["sites"]) == set("abcdef")
    for name in result["sites"]:
        record = json.loads((folder / "sites" / name / "run.json").read_text())
        assert any("6 sites searched together" in line for line in record["controllers"])
        assert (folder / "sites" / name / "report.html").is_file()
        assert (folder / "sites" / name / "policies/retuned-0.safetensors").is_file()
    before = (folder / "common.json").stat().st_mtime_ns
    again = subprocess.run(
        [*command, str(folder), "--quiet"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert (folder / "common.json").stat().st_mtime_ns == before
    assert json.loads((folder / "federation.json").read_text()) == result
