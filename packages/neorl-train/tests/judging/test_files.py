import dataclasses
import json
import math

import numpy as np
import pytest

from neorl_core import InputError
from neorl_train._job.evaluation import write_results
from neorl_train.judging import Verdict, read_evaluation, read_verdict, to_plain


@pytest.fixture
def run(tmp_path, noisy):
    write_results(tmp_path, noisy.evaluation, noisy.verdict)
    return tmp_path


def test_results_come_back_as_they_were(run, noisy):
    result, given = read_evaluation(run), noisy.evaluation
    assert result.tables == given.tables
    assert read_verdict(run) == noisy.verdict
    assert (result.bands, result.source, result.imitation) == (given.bands, given.source, ())
    for read, written in zip(result.results, given.results, strict=True):
        assert (read.name, read.role, read.guarded) == (written.name, written.role, written.guarded)
        assert to_plain(read.episodes) == to_plain(written.episodes)
        assert read.episodes.violated.dtype == bool
        assert read.episodes.length.dtype == np.int64
    for read, written in zip(result.traces, given.traces, strict=True):
        assert to_plain(read) == to_plain(written)
    assert result.bands[0].low == -math.inf


def test_the_files_state_head_units_and_raw_episodes(run):
    content = json.loads((run / "evaluation.json").read_text())
    assert (content["format"], content["version"]) == ("neorl-evaluation", 1)
    assert content["units"]["return"] == "EUR"
    assert content["units"]["cost"] == {"load": "m", "peak": "m"}
    assert content["units"]["length"] == "steps of 60 s"
    assert len(content["results"][0]["episodes"]["returns"]) == 100
    traces = json.loads((run / "traces.json").read_text())
    assert traces["units"]["obs"] == {"level": "m"}
    assert traces["period_s"] == 60
    written = json.loads((run / "verdict.json").read_text())
    assert list(written) == [
        "format",
        "version",
        *(field.name for field in dataclasses.fields(Verdict)),
        "artefact",
    ]
    assert written["answer"] == "deploy"
    assert written["candidate"] == "good-0"
    assert written["artefact"] == "policies/good-0.safetensors"
    assert written["clauses"][0]["unit"] == "EUR"


def broken(run, name, edit):
    path = run / name
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("name", "edit", "words"),
    [
        ("evaluation.json", lambda c: c.update(version=2), "has version 2 of neorl-evaluation"),
        ("evaluation.json", lambda c: c["tables"].pop("level"), "tables.level is missing"),
        (
            "evaluation.json",
            lambda c: c["tables"].update(extra=1),
            "unknown key in [tables] 'extra'",
        ),
        (
            "evaluation.json",
            lambda c: c["tables"]["rows"][2]["returns"].update(low="much"),
            "tables.rows 'bad-0'.returns.low must be a number, got 'much'",
        ),
        (
            "evaluation.json",
            lambda c: c["results"][0].update(role="boss"),
            "unknown value of results 'good-0'.role: 'boss'; known: learner",
        ),
        (
            "evaluation.json",
            lambda c: c["results"][0]["episodes"]["returns"].append([1]),
            "results 'good-0'.episodes.returns must be an array of numbers",
        ),
        (
            "evaluation.json",
            lambda c: c["tables"].update(rows={}),
            "tables.rows must be a list, got {}",
        ),
        ("traces.json", lambda c: c.pop("traces"), "traces is missing"),
        (
            "traces.json",
            lambda c: c["traces"][0].update(start=1.5),
            "traces[0].start must be an integer, got 1.5",
        ),
    ],
)
def test_a_damaged_file_is_named_with_the_place(run, name, edit, words):
    broken(run, name, edit)
    with pytest.raises(InputError) as error:
        read_evaluation(run)
    assert words in str(error.value)
    assert "evaluation.json" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["evaluation.json", "traces.json"])
def test_a_missing_or_cut_file_is_named(run, name):
    text = (run / name).read_text()
    (run / name).write_text(text[: len(text) // 2])
    with pytest.raises(InputError, match=f"{name} is damaged"):
        read_evaluation(run)
    (run / name).unlink()
    with pytest.raises(InputError, match=f"{name}: there is no such file, .*; resume the run"):
        read_evaluation(run)


def test_a_verdict_of_another_shape_is_refused(run):
    broken(run, "verdict.json", lambda c: c.update(answer="perhaps"))
    with pytest.raises(InputError, match="unknown value of answer: 'perhaps'; known: deploy"):
        read_verdict(run)


def test_a_full_disk_leaves_the_old_files(run, noisy, monkeypatch):
    before = {path.name: path.read_bytes() for path in run.iterdir()}

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_results(run, noisy.evaluation, noisy.verdict)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_numbers_that_json_lacks_survive():
    assert to_plain([math.nan, math.inf, -math.inf, 1.5]) == [None, "inf", "-inf", 1.5]
