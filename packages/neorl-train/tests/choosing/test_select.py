"""Choosing among controllers of a log: the command, its files, and what it refuses."""

import dataclasses
import json
import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from neorl_agents import save_policy
from neorl_core import InputError
from neorl_envs import collect_log, make, write_dataset
from neorl_train._command.main import main
from neorl_train._job.plant_model import policies_beside
from neorl_train.choosing import (
    ChooseOptions,
    ChosenCandidate,
    choose_candidate,
    lines,
    logged_episodes,
    page,
    select_candidates,
    value_estimates,
)

CSTR = make("CSTR-v0")


@pytest.fixture(scope="module")
def log():
    return collect_log(CSTR, n_steps=6_000, key=jax.random.key(0))


def test_the_better_controller_is_chosen_and_everything_is_written(
    log, tmp_path, capsys, monkeypatch
):
    """PI with feed-forward earns 97 points more than PI on this plant; see its baselines.

    It filled episodes of its own, so where it goes the log has been.

    Row N23: several estimators stand beside each other for every candidate.
    """
    write_dataset(tmp_path / "log.h5", log)
    out = tmp_path / "choice.html"
    words = ["--updates", "120", "--value-updates", "100", "--output", str(out)]
    selections = []

    def estimated_once(*arguments, **plants):
        selections.extend([] if selections else [select_candidates(*arguments, **plants)])
        return selections[0]

    monkeypatch.setattr("neorl_train.choosing._choose.select_candidates", estimated_once)
    words += ["--show", "values", "risk", "--risk-updates", "100"]
    assert main(["choose", str(tmp_path / "log.h5"), *words]) == 0
    captured = capsys.readouterr()
    assert "learning the plant from the log: values, risk of 2 candidates ...\n" in captured.err
    printed = captured.out.splitlines()
    interval = r"-?[\d.]+ \[-?[\d.]+, -?[\d.]+\]"
    cost = r"temperature [\d.]+ \(up to [\d.]+\) K min"
    unit, by = "reward", rf"; discounted {interval} reward by 4 networks"
    assert re.match(rf"  PI: return {interval} {unit}, runs today; {cost}{by}", printed[0])
    better = rf"\* PI feed-forward: return {interval} {unit}, gain {interval} {unit}; {cost}{by}"
    assert re.match(better, printed[1])
    assert printed[2].startswith("  no safety critic: nothing can be learned about any limit")
    result = json.loads((tmp_path / "choice.json").read_text())
    assert (result["incumbent"], result["chosen"]) == ("PI", "PI feed-forward")
    assert result["value_members"] == 4
    assert main(["choose", str(tmp_path / "log.h5"), *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {**result, "page": str(out)}
    today, better = result["candidates"]
    assert today["prediction"]["gain"] == 0
    assert 20 < better["prediction"]["low"] <= better["prediction"]["gain"] < 150
    for one in result["candidates"]:
        fitted, spread = one["values"]["fitted_q"], one["values"]["spread"]
        # The interval is wider than what the spread between four members adds to it.
        assert 0 < 3.18 * np.sqrt(1.25) * spread < fitted["high"] - fitted["value"]
        assert [x > 0 for x in one["values"]["spread_costs"]] == [True] * CSTR.spec.n_cost
        assert len(one["values"]["fitted_q_costs"]) == CSTR.spec.n_cost
        assert 1 <= one["values"]["effective"] <= log.n_episodes
        distribution = one["distribution"]
        for name in ("mean", "worst_tenth", "bias", "corrected"):
            assert distribution[name]["low"] <= distribution[name]["value"]
            assert distribution[name]["value"] <= distribution[name]["high"]
        assert distribution["worst_tenth"]["value"] < distribution["mean"]["value"]
        assert len(distribution["corrected_costs"]) == CSTR.spec.n_cost
        assert 0 <= distribution["over"][0]["value"] <= 1
        assert 0 <= distribution["far"] <= 1
    # Both controllers filled the log, and two candidates have no rank correlation.
    assert today["distribution"]["far"] < 0.2
    assert set(result["agreements"].values()) == {None}
    text = out.read_text()
    assert "Try PI feed-forward" in text
    assert "too few" in text
    assert "Fitted Q evaluation is the mean of 4 networks" in text
    assert "Spread of 4 networks" in text
    assert "Distribution from the logged starts." in text
    assert "temperature, at most " in text
    assert "No safety critic was fitted: nothing can be learned" in text
    assert "Corrected by the nearest logged rows." in text
    assert "<script" not in text


@pytest.fixture(scope="module")
def kept(log):
    """The better one runs today, and a constant action is the other candidate."""
    from neorl_core.control import ConstantPolicy

    best, shut = CSTR.tunings()[CSTR.reference], ConstantPolicy(np.zeros(1, np.float32))
    pool = {CSTR.reference: best, "shut": shut}
    return select_candidates(
        log, "log.h5", pool, ChooseOptions(updates=60, value_updates=0, held_out_modes=0)
    )


def test_what_runs_is_kept_where_nothing_may_be_preferred(kept):
    """Row R06: a choice by the log alone keeps what runs where nothing may be preferred."""
    assert kept.chosen == kept.incumbent == CSTR.reference
    assert kept.sentence.startswith(f"Keep {CSTR.reference}; from this log alone no candidate")
    assert kept.candidates[1].prediction.refusals
    best, shut = (one.movement for one in kept.candidates)
    assert shut.travel[0].value == shut.travel[0].high == 0
    assert 0 < best.travel[0].low < best.travel[0].value < best.travel[0].high
    assert len(best.deviation) == 3  # no observation is declared exogenous here
    assert "travel per step" in page(ChosenCandidate(kept, None))
    assert "not preferred" in lines(ChosenCandidate(kept, None))[1]
    assert f"Keep {CSTR.reference}" in page(ChosenCandidate(kept, None))
    assert np.isnan(kept.agreement)


def test_with_a_model_that_may_not_be_used_what_runs_is_kept(kept, log, monkeypatch):
    failed = SimpleNamespace(name="excitation", holds=False, sentence="T_c never moved")
    checked, shut = SimpleNamespace(checks=[failed]), dataclasses.replace(kept, chosen="shut")
    for name, made in (
        ("learn_plants", None),
        ("check_plant_model", checked),
        ("select_candidates", shut),
    ):
        monkeypatch.setattr(
            f"neorl_train.choosing._choose.{name}", lambda *_, made=made, **__: made
        )
    options = ChooseOptions(show=("model", "values"))
    failed.decides = True
    refused = choose_candidate(log, "log.h5", CSTR.tunings(), options, incumbent="PI").selection
    assert refused.chosen == CSTR.reference
    assert "plant model fails the check excitation (T_c never moved)" in refused.sentence
    failed.decides = False
    chosen = choose_candidate(log, "log.h5", CSTR.tunings(), options, incumbent="PI").selection
    assert chosen is shut


@pytest.mark.parametrize(
    ("pool", "options", "message"),
    [
        ({}, {}, "there are 0 candidates for log.h5, and a choice needs two or more"),
        (None, {"incumbent": "PID"}, "PID"),
        (None, {"value_updates": 150}, "value_updates must be a multiple of 100 or 0, got 150"),
        (None, {"updates": 0}, "updates must be an integer of at least 1, got 0"),
    ],
)
def test_what_cannot_be_chosen_from_is_named(log, pool, options, message):
    pool = dict(CSTR.tunings()) if pool is None else pool
    with pytest.raises(InputError, match=message):
        select_candidates(log, "log.h5", pool, ChooseOptions(**options))


def test_a_single_network_is_named_as_such_and_has_no_spread(kept, log):
    """The page of a choice with values, and the same values as one fit without an ensemble."""
    policy, episodes = CSTR.tunings()[CSTR.reference], logged_episodes(log)
    values = value_estimates(log, episodes, policy, updates=100, members=1)
    assert (values.spread, values.spread_costs, values.first.shape[0]) == (None, (), 1)
    assert values.fitted_q.value == pytest.approx(values.first.mean(), rel=1e-6)
    candidates = tuple(one._replace(values=values) for one in kept.candidates)
    alone = dataclasses.replace(kept, candidates=candidates, value_members=1)
    chosen = ChosenCandidate(alone, None)
    text = page(chosen)
    assert "Fitted Q evaluation is that of a single network" in text
    assert "Spread of" not in text
    assert "by one network" in lines(chosen)[0]


def test_a_log_of_too_few_episodes_is_refused(log):
    few = log.select_episodes(np.arange(4))
    with pytest.raises(InputError, match="the log has 4 episodes; a plant model needs at least 8"):
        select_candidates(few, "log.h5", CSTR.tunings(), ChooseOptions())


def test_bad_words_are_one_line(tmp_path, capsys):
    for words, message in (
        ([], "choose takes the directory of a run or a log"),
        (["none.h5"], "none.h5: there is no such log or run"),
    ):
        assert main(["choose", *words]) == 2
        assert message in capsys.readouterr().err


def test_the_policies_of_a_run_and_of_files_are_candidates_by_their_names(log, tmp_path):
    spec, observations = log.spec, np.asarray(log.transitions.obs)[:64]
    (tmp_path / "policies").mkdir()
    tunings = CSTR.tunings()
    inside, other = tmp_path / "policies/pi-0.safetensors", tmp_path / "old.safetensors"
    save_policy(inside, tunings["PI"], spec, observations, {})
    save_policy(other, tunings[CSTR.reference], spec, observations, {})
    fallback = tmp_path / "policies/fallback.safetensors"
    save_policy(fallback, tunings["PI"], spec, observations, {"role": "fallback"})
    assert list(policies_beside(tmp_path, [str(other)], spec)) == ["pi-0", "old"]
    with pytest.raises(InputError, match="another candidate is called pi-0; rename the file"):
        policies_beside(tmp_path, [str(inside)], spec)
    with pytest.raises(InputError, match="there is no such policy artefact"):
        policies_beside(tmp_path, ["none.safetensors"], spec)
    with pytest.raises(InputError, match="channel"):
        policies_beside(tmp_path, [], make("DMSD-v0").spec)
