"""A plant model of a log, its checks, its page and the command that writes it."""

import dataclasses
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from html.parser import HTMLParser
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from neorl_core import InputError
from neorl_envs import collect_log, make, write_dataset
from neorl_train._command.main import main
from neorl_train.choosing import (
    ChooseOptions,
    ChosenCandidate,
    check_plant_model,
    choose_candidate,
    mark,
    page,
)
from neorl_train.choosing._model_check import _finite_check, _outcome_checks

QUICK = ChooseOptions(updates=60, episodes=8)
CSTR = make("CSTR-v0")


@pytest.fixture(scope="module")
def log():
    return collect_log(CSTR, n_steps=4_000, key=jax.random.key(0))


@pytest.fixture(scope="module")
def command(log, tmp_path_factory):
    """The command on a file of the log: its folder, what it printed, and its one check."""
    folder, checks = tmp_path_factory.mktemp("model"), []
    out, err = io.StringIO(), io.StringIO()
    write_dataset(folder / "log.h5", log)

    def learned_once(*arguments, **plants):
        checks.extend([] if checks else [check_plant_model(*arguments, **plants)])
        return checks[0]

    def run(*words):
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr("neorl_train._command.main.prepare_process", lambda: None)
            patch.setattr("neorl_train.choosing._choose.check_plant_model", learned_once)
            if checks:
                patch.setattr("neorl_train.choosing._choose.learn_plants", lambda *_: None)
            patch.chdir(folder)
            assert main(["choose", "log.h5", "--show", "model", *words]) == 0
        return out.getvalue()

    printed = run("--updates", "60", "--episodes", "8")
    messages = err.getvalue()
    out.truncate(0), out.seek(0)
    as_json = json.loads(run("--json"))
    return SimpleNamespace(
        folder=folder, printed=printed, messages=messages, as_json=as_json, check=checks[0]
    )


@pytest.fixture(scope="module")
def check(command):
    """Of the plant that the log names, whose PI runs today."""
    return command.check


@pytest.mark.nightly
def test_every_controller_of_the_log_is_replayed_in_its_own_episodes(check, log):
    assert {one.name for one in check.replayed} == set(log.attributes["behaviours"])
    assert sum(one.episodes for one in check.replayed) == len(check.free.lengths) == 8
    for one in check.replayed:
        assert one.logged.shape == one.predicted.shape == (1 + CSTR.spec.n_cost,)
        assert np.isfinite(one.predicted).all()


def test_what_decides_and_what_is_only_to_be_looked_at(check):
    names = [one.name for one in check.checks]
    costs = [c.name for c in CSTR.spec.cost]
    beside = ["one step ahead", "return", *costs]
    of_costs = [f"model, {name}{end}" for name in costs for end in ("", " over its limit")]
    trust = ["model", *of_costs, "held-out mode"]
    assert names == [*trust, "excitation", *beside, "rollouts stay finite"]
    # The mode that was left out goes beyond the data of the other, so its error does not count.
    warnings = ["model, temperature over its limit", "held-out mode", *beside]
    assert [one.name for one in check.checks if not one.decides] == warnings
    assert [one.name for one in check.held_out] == ["PI feed-forward"]
    assert check.checks[0].sentence.startswith("the model reproduces PI: it predicts a return of ")
    assert ", and the log shows " in check.checks[0].sentence
    passed = [one._replace(holds=True) for one in check.checks]
    cost = [one._replace(holds=one.decides) for one in passed]
    assert dataclasses.replace(check, checks=tuple(cost)).usable
    assert {mark(one) for one in cost} == {"\N{CHECK MARK}", "!"}
    moved = tuple(one._replace(holds=one.name != "excitation") for one in passed)
    failed = dataclasses.replace(check, checks=moved)
    assert not failed.usable
    assert failed.sentence == (
        "No choice should be based on this model: excitation. To change that, provide a test "
        "signal or manual moves on each actuator that is named, or many steps of its setpoint."
    )
    apart = tuple(one._replace(holds=not one.name.startswith("model")) for one in passed)
    assert dataclasses.replace(check, checks=apart).sentence.count("named with --exogenous") == 1


@pytest.mark.nightly
def test_a_log_of_noise_is_no_ground_for_a_model(log):
    """Next observations that have nothing to do with what was before."""
    rng = np.random.default_rng(0)
    rows = log.transitions
    noise = rng.permutation(np.asarray(rows.obs))
    after = np.append(noise[1:], noise[:1], axis=0)
    shuffled = dataclasses.replace(log, transitions=rows._replace(obs=noise, next_obs=after))
    unknown = check_plant_model(shuffled, "noise.h5", QUICK)
    assert not unknown.usable
    # Nobody says what runs today, so what the logged actions lead to decides.
    costs = {channel.name for channel in CSTR.spec.cost}
    assert {one.name for one in unknown.checks if not one.decides} == {"held-out mode", *costs}


def test_a_model_that_diverges_gives_no_number(check):
    wild = check.free._replace(outcome=np.full_like(check.free.outcome, np.nan))
    checks = [*_outcome_checks(wild, CSTR.spec, "EUR", decides=True), _finite_check(wild)]
    assert not any(one.holds for one in checks)
    assert {one.sentence for one in checks} == {
        "predicted episodes diverge, so it cannot be computed",
        "predicted episodes diverge",
    }


def test_the_page_shows_pictures_and_asks_for_nothing_outside(check):
    text = page(ChosenCandidate(None, check))
    assert text.count("<svg") == 4

    class Links(HTMLParser):
        outside = ()

        def handle_starttag(self, tag, attrs):
            for name, value in attrs:
                if name in ("href", "src") and not value.startswith(("#", "data:")):
                    self.outside = (*self.outside, value)

    links = Links()
    links.feed(text)
    assert links.outside == ()


def test_the_command_writes_the_page(command):
    assert command.messages.startswith(
        "learning the plant from the log: model of 2 candidates ...\n"
    )
    printed = command.printed.splitlines()
    assert printed[-1] == "page: choice.html, numbers: choice.json"
    assert "return: the mean is " in "\n".join(printed)
    assert command.as_json["format"] == "neorl-choice"
    assert command.as_json["model"]["sentence"] == printed[-2]
    (left_out,) = command.as_json["model"]["held_out_modes"]
    assert left_out["name"] == "PI feed-forward"
    assert len(left_out["predicted"]) == 1 + CSTR.spec.n_cost
    text = (command.folder / "choice.html").read_text()
    assert "Controllers that were left out of the fit" in text


def test_without_two_candidates_the_model_alone_is_shown(check, log, monkeypatch):
    monkeypatch.setattr("neorl_train.choosing._choose.learn_plants", lambda *_: None)
    monkeypatch.setattr("neorl_train.choosing._choose.check_plant_model", lambda *_, **__: check)
    choice = choose_candidate(log, "log.h5", {}, QUICK)
    assert (choice.selection, choice.check) == (None, check)
    unknown, few = choice.notes
    assert unknown.startswith("the controller that runs today is not known")
    assert few.startswith("there are no candidates for log.h5, so only the plant model is shown")
    values = dataclasses.replace(QUICK, show=("values",))
    with pytest.raises(InputError, match=r"there are 0 candidates for log\.h5"):
        choose_candidate(log, "log.h5", {}, values)


def test_the_command_names_what_is_wrong(log, command, capsys, monkeypatch):
    monkeypatch.chdir(command.folder)
    for words, message in (
        ((), "choose takes the directory of a run or a log"),
        (("none.h5",), "none.h5: there is no such log or run"),
        (("CSTR-v0",), "record one with `neorl-envs collect CSTR-v0 --out log.h5`"),
        (("log.h5", "--exogenous", "C_B"), "C_B"),
        (("log.h5", "--updates", "0"), "updates must be an integer of at least 1"),
        (("log.h5", "--held_out_modes", "-1"), "held-out-modes must be an integer of at least 0"),
    ):
        assert main(["choose", *words]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(InputError, match="observation in exogenous"):
        check_plant_model(log, "log.h5", ChooseOptions(exogenous=("C_B",)))
