"""An evaluation is taken from another run exactly where nothing in it would differ."""

import jax.numpy as jnp
import pytest

from neorl_core.control import ConstantPolicy
from neorl_train._job.evaluation import (
    INPUTS,
    RESULTS,
    evaluation_inputs,
    matching_evaluation,
    results_digest,
    write_results,
)
from neorl_train.judging import read_evaluation
from neorl_train.runs import create_run

RECORD = {"config_hash": "sha256:c", "dataset": {"content_hash": "sha256:d"}, "status": "finished"}
POLICIES = {"bc-0": ConstantPolicy(jnp.zeros(1))}


@pytest.fixture
def runs(tmp_path, noisy):
    """A finished run, and one that is to be evaluated."""
    first, second = (create_run(tmp_path / "runs", "", dict(RECORD)) for _ in range(2))
    write_results(first.path, noisy.evaluation, noisy.verdict)
    inputs = evaluation_inputs(first.record(), POLICIES, candidate="bc-0")
    first.update_record(**{INPUTS: inputs, RESULTS: results_digest(first.path)})
    return first, second, inputs


def test_it_is_found_and_written_again_to_the_bit(runs, noisy, tmp_path):
    first, second, inputs = runs
    result = matching_evaluation(second, inputs)
    assert result is not None
    where, evaluation = result
    assert where == first.path
    write_results(second.path, evaluation, noisy.verdict)
    assert results_digest(second.path) == results_digest(first.path)
    assert matching_evaluation(first, inputs) is None  # not its own
    assert read_evaluation(second.path).tables == evaluation.tables


@pytest.mark.parametrize("file", ["evaluation.json", "traces.json"])
def test_one_that_was_changed_is_not_taken(runs, file):
    first, second, inputs = runs
    path = first.path / file
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    assert matching_evaluation(second, inputs) is None


def test_whatever_decides_is_in_the_digest(monkeypatch, runs):
    _, second, inputs = runs
    others = {
        "policy": evaluation_inputs(RECORD, {"bc-0": ConstantPolicy(jnp.ones(1))}),
        "name": evaluation_inputs(RECORD, {"bc-1": ConstantPolicy(jnp.zeros(1))}),
        "config": evaluation_inputs({**RECORD, "config_hash": "sha256:e"}, POLICIES),
        "log": evaluation_inputs({**RECORD, "dataset": {"content_hash": "x"}}, POLICIES),
        "file": evaluation_inputs({**RECORD, "given_policies": {"old.safetensors": "1"}}, POLICIES),
        "candidate": evaluation_inputs(RECORD, POLICIES, candidate="bc-1"),
    }
    monkeypatch.setattr("neorl_train._job.evaluation.OWN_PACKAGES", ("neorl_core",))
    others["code"] = evaluation_inputs(RECORD, POLICIES, candidate="bc-0")
    assert len({inputs, *others.values()}) == 8
    for digest in others.values():
        assert matching_evaluation(second, digest) is None


@pytest.mark.parametrize(
    "about", [{"origins": {"learner": {"mine": "my-learners 0.3"}}}, {"fine_tunes": "runs/0001"}]
)
def test_what_is_not_watched_is_never_taken(runs, about):
    _, second, _ = runs
    assert evaluation_inputs({**RECORD, **about}, POLICIES) == ""
    second.update_record(**{INPUTS: ""})
    assert matching_evaluation(second, "") is None
