"""Sites that vote on proposed gains: on gains with a known best, and by the command."""

import json
import subprocess
import sys
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import ALGORITHMS
from neorl_core import Channel, InputError, Spec
from neorl_core.control import StateFeedback, tunables, tuned
from neorl_envs import environment_names, make
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
NAMES = tuple("abcdef")
RUNS = (0.3, 0.5, 0.8, 0.6, 1.0, 0.4)
"""The gain in force at every site."""
FINDS = (1.2, 1.1, 1.3, 0.1, 1.0, 1.25)
"""What the search of each ends with; the fourth one's log misleads it."""
BEST = (1.2, 1.15, 1.25, 1.2, 1.1, 1.2)
"""What would be best at each."""
PROPOSALS = [*(f"{name}-today" for name in NAMES), *NAMES, "median-today", "median"]
VALUES = [*RUNS, *FINDS, *(float(np.exp(np.median(np.log(each)))) for each in (RUNS, FINDS))]


def controller(gain):
    """A controller with one gain and one bias."""
    low, high = (jnp.full(1, x) for x in (-50.0, 50.0))
    return StateFeedback(jnp.full((1, 1), gain), jnp.zeros(1), jnp.zeros(1), low, high)


def at(gain):
    """Where a gain is on the common axes, in steps of a half."""
    return np.log(gain) / 0.5


def plants_of(spec):
    """What a site that predicts nothing needs of its plant models."""
    return SimpleNamespace(
        model=SimpleNamespace(spec=spec), rows=SimpleNamespace(start=np.zeros(100))
    )


class Known(RetuningSite):
    """A site whose predicted gains are distances from a best tuning of its own."""

    def __init__(self, number, settings, faults):
        runs = controller(RUNS[number])
        super().__init__(NAMES[number], plants_of(SPEC), runs, settings, faults=faults)
        self.number = number

    def propose(self):
        return np.stack([self.today, [at(FINDS[self.number]), self.today[1]]])

    def gains(self, proposed):
        distance = np.abs(proposed[:, 0] - at(BEST[self.number]))
        return -(1000.0 ** (self.number % 2)) * distance


def made(settings, faults=()):
    return [Known(i, settings, faults) for i in range(len(NAMES))]


def settings_of(rule="mean", groups=1, byzantine=0, **options):
    secure = options.pop("secure_sum", True)
    options = {"method": "retuning", "weights": "equal", **options}
    return Federation(
        FederationConfig(rule=rule, byzantine=byzantine, **options),
        messages=MessagesConfig(secure_sum=secure, groups=groups),
    )


MEDIAN = settings_of("median", groups=3, byzantine=1)


def nearer(name):
    """The proposals that are nearer to 1.2, which is best for most, than what runs at a site."""
    own = abs(at(RUNS[NAMES.index(name)]) - at(1.2))
    return {
        title
        for title, gain in zip(PROPOSALS, VALUES, strict=True)
        if abs(at(gain) - at(1.2)) < own
    }


@pytest.mark.parametrize("settings", [settings_of(), settings_of(secure_sum=False), MEDIAN])
def test_sites_prefer_what_is_better_for_all(settings):
    """The gains of every other site are a thousand times larger, and weigh no more."""
    sites = made(settings)
    found = federate_retuning(sites, settings)
    assert found.names == tuple(PROPOSALS)
    np.testing.assert_allclose(found.values[:, 0], at(VALUES), rtol=1e-5)
    for site in sites:
        changes = found.changes_for(site)
        assert set(changes) == nearer(site.name)
        for title, change in changes.items():
            gain = RUNS[site.number] * np.exp(0.5 * change[0])
            assert gain == pytest.approx(VALUES[PROPOSALS.index(title)], rel=1e-5)
            assert change[1] == 0


def test_what_misled_a_site_is_not_preferred_even_there():
    sites = made(MEDIAN)
    found = federate_retuning(sites, MEDIAN)
    assert all("d" not in found.changes_for(site) for site in sites)


def test_a_false_site_cannot_change_what_the_others_agree_on_in_a_median():
    """Its own proposals stay as they were, so that its votes alone are false."""
    fault = (Fault("f", "flipped", factor=20.0),)
    values = np.stack([at(np.asarray(VALUES)), np.zeros(len(VALUES))], axis=1)
    start = RoundStart(0, values.astype(np.float32).ravel(), NAMES)
    honest = [site.work(start)().arrays[0] for site in made(settings_of(secure_sum=False))[:-1]]
    agreed = np.ptp(honest, axis=0).reshape(len(VALUES), -1) == 0
    assert 0.5 < agreed.mean() < 1
    for settings, stays in ((MEDIAN, True), (settings_of(), False)):
        told, lied = (
            federate_retuning(made(settings, faults), settings, faults=faults).preferred > 0
            for faults in ((), fault)
        )
        assert np.array_equal(told[agreed], lied[agreed]) == stays


def test_masked_votes_sum_to_what_they_hide():
    values = np.stack([at(np.asarray(VALUES)), np.zeros(len(VALUES))], axis=1).astype(np.float32)
    start, scale = RoundStart(3, values.ravel(), NAMES), 2.0**24
    masked, plain = made(settings_of()), made(settings_of(secure_sum=False))
    published = {site.name: site.pairings.public for site in masked}
    size = len(VALUES) * len(NAMES)
    total, votes = np.zeros(size, np.uint32), []
    for hidden, shown in zip(masked, plain, strict=True):
        hidden.pairings.exchange_keys(published)
        assert hidden.work(start)().arrays == ()
        (term,) = hidden.mask(start, share=1 / 6, largest=1.0, scale=scale).arrays
        total += term
        (sent,) = shown.work(start)().arrays
        of_gains = shown.gains(values)
        order = np.sign(of_gains[:, None] - of_gains[None, : len(NAMES)]) / 2
        np.testing.assert_array_equal(sent.reshape(order.shape), order)
        assert np.abs(term.astype(np.int32) / scale - sent / 6).max() > 1
        votes.append(sent)
    np.testing.assert_allclose(total.astype(np.int32) / scale, np.mean(votes, axis=0), atol=1e-6)


def test_dead_and_late_sites_are_named_and_the_others_vote():
    faults = (Fault("b", "dead"), Fault("c", "late"))
    settings = settings_of()
    sites = made(settings, faults)
    found = federate_retuning(sites, settings, faults=faults)
    (record,) = found.records
    assert [record.outcomes[name] for name in "abc"] == ["answered", "dead", "late"]
    assert "a" in found.changes_for(sites[0])


def test_a_vote_in_which_too_few_answer_is_repeated_and_then_an_error():
    faults = tuple(Fault(name, "dead", last=0) for name in NAMES)
    found = federate_retuning(made(MEDIAN, faults), MEDIAN, faults=faults, print_line=str)
    assert [record.counted for record in found.records] == [False, True]
    faults = tuple(Fault(name, "dead") for name in NAMES)
    with pytest.raises(InputError, match="no round has been completed since round 0: a: dead"):
        federate_retuning(made(MEDIAN, faults), MEDIAN, faults=faults, print_line=str)
    assert federate_retuning(made(MEDIAN), MEDIAN, stop=lambda: True) is None


def test_controllers_with_other_parameters_or_the_other_direction_are_refused():
    sites = made(MEDIAN)
    sites[2].parameters = sites[2].parameters[:1]
    with pytest.raises(InputError, match=r"controller of site c is tuned by .*, that of site a"):
        federate_retuning(sites, MEDIAN)
    sites = made(MEDIAN)
    sites[1].signs = (-1.0, 0.0)
    with pytest.raises(InputError, match=r"gain .* has another sign at site b than at a; only"):
        federate_retuning(sites, MEDIAN)


@pytest.mark.parametrize("name", environment_names())
def test_the_common_axes_are_those_on_which_controllers_are_tuned(name):
    """A tuning that is some steps from another is as many steps from it on the axes."""
    plant = make(name)
    ordinary = next(iter(plant.tunings().values()))
    declared = tunables(ordinary, plant.spec)
    changes = np.random.default_rng(3).normal(size=len(declared))
    changed = tuned(ordinary, declared, jnp.asarray(changes), spread=np.ones(plant.spec.n_obs))
    sites = [
        RetuningSite("a", plants_of(plant.spec), one, settings_of(secure_sum=False))
        for one in (ordinary, changed)
    ]
    moved = sites[1].today - sites[0].today
    factors = np.asarray([one.kind == "factor" for one in declared])
    np.testing.assert_allclose(moved, np.where(factors, changes, 0), atol=1e-4)


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
        federate_retuning(made(settings), settings)


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
    assert "votes on 14 proposed tunings combined by median" in done.stdout
    folder = tmp_path / "federations/0001"
    voted = json.loads((folder / "proposals.json").read_text())
    assert voted["parameters"] == ["gain of T_c", "integral time of T_c"]
    assert len(voted["proposals"]) == 14
    assert set(voted["preferred"]) == set("abcdef")
    result = json.loads((folder / "federation.json").read_text())
    assert set(result["sites"]) == set("abcdef")
    for name in result["sites"]:
        record = json.loads((folder / "sites" / name / "run.json").read_text())
        assert any("6 sites retuned together" in line for line in record["controllers"])
        assert (folder / "sites" / name / "report.html").is_file()
        assert (folder / "sites" / name / "policies/retuned-0.safetensors").is_file()
    before = (folder / "proposals.json").stat().st_mtime_ns
    again = subprocess.run(
        [*command, str(folder), "--quiet"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert (folder / "proposals.json").stat().st_mtime_ns == before
    assert json.loads((folder / "federation.json").read_text()) == result
