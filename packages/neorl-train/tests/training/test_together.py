"""Several settings of a learner in one program are their single runs."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from neorl_agents import ALGORITHMS
from neorl_agents.testing import sized
from neorl_core import InputError
from neorl_train import train
from neorl_train.runs import Checkpoints, tree_digest
from neorl_train.training import Plan, Setting, program_key, train_together

RATES = (0.05, 0.1, 0.2)
PLAN = Plan(60, 20, 20)


def _together(*given, **options) -> Any:
    """As the function, with results that are known to be trainings or refusals."""
    return train_together(*given, **options)


def _settings(make_line, make_notes, rates=RATES):
    made: Any = [Setting(make_line(learning_rate=rate), make_notes()) for rate in rates]
    return made


def _alone(make_line, make_notes, line_data, rate, plan=PLAN):
    notes = make_notes()
    return train(make_line(learning_rate=rate), line_data, (4, 5), plan, watcher=notes), notes


def test_queued_settings_are_their_single_runs_to_the_bit(make_line, make_notes, line_data):
    settings = _settings(make_line, make_notes)
    seen = []
    result = _together(
        settings, line_data, (4, 5), PLAN, form="queued", progress=lambda n: seen.append(n)
    )
    for setting, one, rate in zip(settings, result, RATES, strict=True):
        single, notes = _alone(make_line, make_notes, line_data, rate)
        assert not isinstance(one, InputError)
        assert tree_digest(one.snapshot) == tree_digest(single.snapshot)
        assert setting.watcher.chunks == notes.chunks
        assert one.algorithm.learning_rate == rate
    assert len({tree_digest(one.snapshot) for one in result}) == len(RATES)
    assert seen[-1] == 60 * 2 * 3
    assert seen == sorted(seen)


def test_batched_settings_are_close_to_their_single_runs(make_line, make_notes, line_data):
    """Rows and keys are the same, so that only rounding differs."""
    settings = _settings(make_line, make_notes)
    result = _together(settings, line_data, (4, 5), PLAN, form="vmap")
    for setting, one, rate in zip(settings, result, RATES, strict=True):
        single, notes = _alone(make_line, make_notes, line_data, rate)
        pairs = zip(*map(jax.tree.leaves, (one.snapshot, single.snapshot)), strict=True)
        for a, b in pairs:
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        for (step, mine), (same, other) in zip(setting.watcher.chunks, notes.chunks, strict=True):
            assert step == same
            np.testing.assert_allclose(
                [m["loss"] for m in mine], [m["loss"] for m in other], rtol=1e-4
            )


@pytest.mark.parametrize("form", ["queued", "vmap"])
def test_a_setting_that_diverges_ends_alone(make_line, make_notes, line_data, form):
    settings = _settings(make_line, make_notes, (0.1, 1e30))
    good, bad = _together(settings, line_data, (4,), PLAN, form=form)
    assert isinstance(bad, InputError)
    assert "diverged" in str(bad)
    assert good.finished
    assert np.isfinite(good.snapshot["state"].learner.parameters["weight"]).all()


@pytest.mark.parametrize("form", ["queued", pytest.param("vmap", marks=pytest.mark.nightly)])
def test_settings_that_were_stopped_go_on(make_line, make_notes, line_data, form, tmp_path):
    """One of them had been taken further than the other."""

    def settings(*names):
        return [
            Setting(
                make_line(learning_rate=RATES[int(name)]),
                make_notes(),
                Checkpoints(
                    tmp_path / form / name,
                    identity={},
                    interval=20,
                    keep=2,
                    print_line=lambda _: None,
                ),
            )
            for name in names
        ]

    stops = iter([False] * 4 + [True] * 9)
    stopped = _together(
        settings("0", "1"), line_data, (4, 5), PLAN, form=form, stop=lambda: next(stops)
    )
    assert [one.finished for one in stopped] == [False, False]
    (first,) = _together(settings("0"), line_data, (4, 5), Plan(40, 20, 20), form=form)
    assert first.step == 40
    both = _together(settings("0", "1"), line_data, (4, 5), PLAN, form=form)
    for one, rate in zip(both, RATES, strict=False):
        single, _ = _alone(make_line, make_notes, line_data, rate)
        assert one.finished
        pairs = zip(*map(jax.tree.leaves, (one.snapshot, single.snapshot)), strict=True)
        for a, b in pairs:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_program_is_shared_by_what_differs_in_numbers_alone(make_line, line_data):
    key = program_key(make_line(), 100)
    assert key == program_key(make_line(learning_rate=3.0), 100)
    assert key != program_key(make_line(cycle=3), 100)
    settings = [Setting(make_line()), Setting(make_line(cycle=3))]
    with pytest.raises(InputError, match="2 settings need 2 programs"):
        train_together(settings, line_data, (0,), PLAN)


def test_one_program_is_compiled_for_all(make_line, line_data, monkeypatch):
    from neorl_train.training import _queues

    compiled = []
    own = _queues.SeedQueues._compile

    def counted(self, i, n_updates):
        compiled.append(self._devices[i])
        return own(self, i, n_updates)

    monkeypatch.setattr(_queues.SeedQueues, "_compile", counted)
    settings = [Setting(make_line(learning_rate=rate)) for rate in RATES]
    train_together(settings, line_data, (0, 1), PLAN, form="queued")
    assert len(compiled) == len(set(compiled)) <= len(jax.local_devices())


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["bc", "td3_bc", "iql"])
def test_real_learners_batched_stay_close_to_single_runs(line_data, name):
    """After 50 updates of Adam at the usual rates; the queued form is equal to the bit."""
    base = sized(ALGORITHMS[name](), hidden=(8, 8), batch_size=16)
    field = next(f.name for f in dataclasses.fields(base) if f.name.endswith("learning_rate"))
    usual = getattr(base, field)
    learners = [dataclasses.replace(base, **{field: usual * factor}) for factor in (0.5, 1.0, 2.0)]
    plan = Plan(48, 16, 48)
    singles = [train(one, line_data, (0, 1), plan) for one in learners]
    settings = [Setting(one) for one in learners]
    batched = _together(settings, line_data, (0, 1), plan, form="vmap")
    queued = _together(settings, line_data, (0, 1), plan, form="queued")
    for single, close, equal in zip(singles, batched, queued, strict=True):
        assert tree_digest(single.snapshot) == tree_digest(equal.snapshot)
        pairs = zip(*map(jax.tree.leaves, (close.snapshot, single.snapshot)), strict=True)
        for a, b in pairs:
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)
