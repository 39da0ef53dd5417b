"""``neorl-train federate``: its file, its one-line refusals, and one that is killed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from neorl_agents import ALGORITHMS, load_policy
from neorl_core import InputError
from neorl_core.testing import configure_tests
from neorl_envs import write_dataset
from neorl_train._command.main import main
from neorl_train._command.subcommands.federate import read_federation
from neorl_train._process.progress import Reporter, Timings
from neorl_train.configuration import DataConfig
from neorl_train.data import changed_plant
from neorl_train.federation import _job as job
from neorl_train.federation._job import mean_gain, new_federation, run_federation
from neorl_train.judging import read_evaluation

FILE = """
[federation]
rounds = 3
local_updates = 50
{federation}
[data]
source = "CSTR-v0"
steps = 1500
[training]
seeds = [0]
[algorithms.td3_bc.networks]
hidden = [16]
[algorithms.td3_bc.steps]
batch_size = 32
[evaluation]
starts = 4
curve_starts = 0
[output]
directory = "federations"
[sites.north]
[sites.south.data]
seed = 1
constants = {{ transfer = 0.9 }}
[sites.east.data]
seed = 2
{more}
"""


def plan_of(folder: Path, *words: str, federation: str = "", more: str = ""):
    file = folder / "sites.toml"
    file.write_text(FILE.format(federation=federation, more=more))
    return read_federation([str(file), *words], ALGORITHMS)


def test_sites_take_the_shared_sections_and_their_own(tmp_path):
    folder, plan, text, flags = plan_of(tmp_path, "--federation.rule", "median", "--quiet")
    assert folder is None
    assert flags.quiet
    assert list(plan.sites) == ["north", "south", "east"]
    assert [config.data.seed for config in plan.sites.values()] == [0, 1, 2]
    assert plan.sites["south"].data.constants == {"transfer": 0.9}
    assert plan.sites["north"].data == DataConfig(source="CSTR-v0", steps=1500)
    assert {config.training.updates for config in plan.sites.values()} == {150}
    assert plan.settings.federation.rule == "median"
    (tmp_path / "again.toml").write_text(text)
    again = read_federation([str(tmp_path / "again.toml")], ALGORITHMS)[1]
    assert again.to_dict() == plan.to_dict()


def test_the_help_explains_the_penalty_and_its_sections(capsys):
    assert main(["federate", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Reward subtracted per unit of each cost" in shown
    assert "privacy Differential privacy of the sites" in shown


def test_words_without_a_file_are_sites():
    words = ["a/log.h5", "b/log.h5", "CSTR-v0", "--penalty", "x", "1"]
    plan = read_federation(words, ALGORITHMS)[1]
    assert {name: config.data.source for name, config in plan.sites.items()} == {
        "log": "a/log.h5", "log2": "b/log.h5", "CSTR-v0": "CSTR-v0",
    }  # fmt: skip


def test_no_site_at_all_is_refused_with_an_example():
    with pytest.raises(InputError, match="federate needs a file with sections"):
        read_federation([], ALGORITHMS)


REFUSED = {
    "an unknown section": ((), "", "[sites.west.dada]\nseed = 1", "did you mean 'data'"),
    "its own learner": (
        (), "", '[sites.west.training]\nseeds = [1]',
        r"\[sites.west.training\] is not allowed, .*; move it to \[training\]",
    ),
    "a fault of nobody": ((), "", '[[faults]]\nsite = "weft"', "did you mean|weft"),
    "an unknown rule": ((), 'rule = "medium"', "", "did you mean 'median'"),
    "too many faulty": (("--federation.rule", "krum"), "byzantine = 1", "", "needs 5 sites"),
    "two learners": (("--training.algorithms", "iql", "td3_bc"), "", "", "one learner together"),
    "a bad name": ((), "", '[sites."a b"]', "letters, digits, dashes and underscores"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_federation_is_refused_in_one_line(case, tmp_path):
    words, federation, more, message = REFUSED[case]
    with pytest.raises(InputError, match=message) as error:
        plan_of(tmp_path, *words, federation=federation, more=more)
    assert "\n" not in str(error.value)


def test_a_site_with_another_plant_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, plan, text, _ = plan_of(tmp_path, more='[sites.west.data]\nsource = "DMSD-v0"')
    with pytest.raises(InputError, match=r"site west has 6 observed channels .* site north has 3"):
        new_federation(plan, text, Reporter(quiet=True))
    assert not (tmp_path / "federations").exists()


def test_a_log_that_cannot_be_read_is_refused_with_the_name_of_its_site(
    tmp_path, make_log, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        write_dataset(tmp_path / f"{name}.h5", make_log(n_cost=0))
    words = ["one.h5", "two.h5", "--algorithms.td3-bc.steps.batch-size", "8"]
    _, plan, text, _ = read_federation(words, ALGORITHMS)
    quiet = Reporter(quiet=True)
    folder = new_federation(plan, text, quiet)

    def refuse(run, session):
        raise InputError("the log is too short")

    monkeypatch.setattr(job, "read_experience", refuse)
    with pytest.raises(InputError, match=r"^site one: the log is too short"):
        run_federation(folder, plan, quiet, Timings())


def test_constants_of_a_plant_are_changed_by_name_and_checked():
    plant = changed_plant("CSTR-v0", {"transfer": 0.9})
    usual = changed_plant("CSTR-v0", {}).default_params().constants
    changed = plant.default_params().constants
    np.testing.assert_allclose(changed.transfer, 0.9 * usual.transfer)
    assert changed.flow == usual.flow
    assert plant is changed_plant("CSTR-v0", {"transfer": 0.9})
    for factors, message in (
        ({"transfr": 1.1}, "did you mean 'transfer'"),
        ({"transfer": float("nan")}, "must be a finite factor"),
        ({"transfer": -1.0}, "'transfer' must be finite and positive"),
    ):
        with pytest.raises(InputError, match=message):
            changed_plant("CSTR-v0", factors)


def test_a_plant_with_actuators_of_unlimited_speed_can_be_changed():
    mass = changed_plant("DMSD-v0", {"mass": 1.2}).default_params().constants.mass
    np.testing.assert_allclose(mass, [24.0, 24.0])


def test_the_error_of_the_gain_is_over_seeds_which_all_sites_share():
    """Two seeds with gains of 97.7 and 1.3 at four sites: only two trainings were seen."""
    starts = np.linspace(-20, 20, 8)
    sites = [np.asarray([97.7 + starts, 1.3 + starts]) for _ in range(4)]
    gain = mean_gain(sites)
    over_starts = starts.std(ddof=1) / np.sqrt(8) / 2
    assert gain["mean"] == pytest.approx(49.5)
    assert gain["standard_error"] == pytest.approx(np.hypot(48.2, over_starts))
    alone = mean_gain([site[:1] for site in sites])
    assert alone["standard_error"] == pytest.approx(over_starts)


def test_the_error_of_the_gain_is_that_of_repetitions():
    """Effects of seeds, of starts and a remainder, drawn anew in every repetition."""
    random = np.random.default_rng(0)
    gains = []
    for _ in range(2000):
        seeds = random.normal(0, 3, (5, 1))
        sites = [
            seeds + random.normal(0, 4, (1, 12)) + random.normal(0, 5, (5, 12)) for _ in range(3)
        ]
        gains.append(mean_gain(sites))
    errors = np.asarray([gain["standard_error"] for gain in gains])
    means = np.asarray([gain["mean"] for gain in gains])
    assert np.sqrt((errors**2).mean()) == pytest.approx(means.std(), rel=0.06)


@pytest.mark.nightly
def test_a_federation_that_is_killed_comes_to_the_same_policies(tmp_path, make_log):
    """The whole command: logs, rounds, site runs, comparison; and what deploy would read."""
    del make_log
    configure_tests()
    file = tmp_path / "sites.toml"
    file.write_text(FILE.format(federation='rule = "median"\nbyzantine = 1', more=(
        '[[faults]]\nsite = "east"\nkind = "flipped"\nfirst = 1\n'
    )))  # fmt: skip
    command = [sys.executable, "-m", "neorl_train", "federate"]
    whole = subprocess.run(
        [*command, str(file), "--quiet"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert whole.returncode == 0, whole.stderr
    first = tmp_path / "federations/0001"
    result = json.loads((first / "federation.json").read_text())
    assert set(result["sites"]) == {"north", "south", "east"}
    for name, site in result["sites"].items():
        assert {"federated", "local", "PI", "PI feed-forward"} <= set(site["returns"])
        rows = read_evaluation(first / "sites" / name).tables.rows
        assert {"td3_bc-0", "td3_bc_local-0"} <= {row.name for row in rows}
        assert (first / "sites" / name / "report.html").is_file()
    assert "mean of the sites" in whole.stdout

    process = subprocess.Popen(
        [*command, str(file), "--quiet"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    second = tmp_path / "federations/0002"
    rounds, deadline = second / "rounds.jsonl", time.monotonic() + 1500
    while not (rounds.exists() and rounds.read_text().count("\n") >= 2):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()  # waits, and closes the pipe
    again = subprocess.run(
        [*command, str(second), "--quiet"], cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    lines = [json.loads(line) for line in rounds.read_text().splitlines()]
    assert [line["round"] for line in lines] == [0, 1, 2]
    for name in result["sites"]:
        policies = [
            load_policy(folder / "sites" / name / "policies/td3_bc-0.safetensors").policy
            for folder in (first, second)
        ]
        obs = read_obs(first / "sites" / name)
        actions = [np.asarray(p(p.initial_carry(), obs, None)[1]) for p in policies]
        np.testing.assert_array_equal(*actions)
    resumed = subprocess.run(
        [sys.executable, "-m", "neorl_train", "resume", str(second / "sites/north")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert resumed.returncode == 2
    words = r"is a site of a federation; continue the federation with `neorl-train federate"
    assert re.search(words, resumed.stderr)


@pytest.mark.nightly
def test_sites_that_are_logs_are_judged_on_their_logs(tmp_path, make_log):
    for name in ("one", "two"):
        write_dataset(tmp_path / f"{name}.h5", make_log(n_cost=0))
    done = subprocess.run(
        [sys.executable, "-m", "neorl_train", "federate", "one.h5", "two.h5", "--json",
         "--federation.rounds", "2", "--federation.local-updates", "10",
         "--algorithms.td3-bc.steps.batch-size", "8"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "federations/0001/federation.json").read_text())
    assert set(result["sites"]) == {"one", "two"}
    assert "mean_of_sites" not in result
    printed = json.loads(done.stdout)
    assert printed["format"] == "neorl-federation"
    assert [site["status"] for site in printed["sites"].values()] == ["finished", "finished"]


def read_obs(site: Path):
    from neorl_envs import read_dataset

    return np.asarray(read_dataset(site / "dataset.h5").transitions.obs)[7]
