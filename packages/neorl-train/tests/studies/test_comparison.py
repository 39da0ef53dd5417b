"""Several runs in one table, against numbers worked out apart."""

import csv
import dataclasses
import json
import re
import shutil
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from scipy.stats import trim_mean, wilcoxon

from neorl_agents import save_policy
from neorl_core import InputError
from neorl_core.control import ConstantPolicy
from neorl_core.infrastructure import head, write_json
from neorl_core.statistics import crossed_interval
from neorl_train._command.main import main
from neorl_train._job.evaluation import write_results
from neorl_train.judging import ActionFit, Clause, Estimate, Verdict, paired_comparison
from neorl_train.runs import create_run
from neorl_train.studies import aggregate, compare_runs, comparison_text, write_comparison
from neorl_train.studies._comparison import _flat
from neorl_train.studies._figures import Dots
from neorl_train.studies._files import _comparison_figures
from neorl_train.studies._tables import comparison_tables

CONFIG = """
[data]
source = "{source}"
[training]
algorithms = ["good", "bad"]
[algorithms.good]
gain = {gain}
[algorithms.bad]
gain = 0.05
[output]
directory = "{source}"
"""


def _leave_run(path, noisy, *, source, gain, status="finished"):
    path.mkdir(parents=True)
    (path / "config.toml").write_text(CONFIG.format(source=source, gain=gain))
    record = {"status": status, "error": ""}
    write_json(path / "run.json", {**head("run", 1), **record})
    tables = dataclasses.replace(noisy.tables, environment=source)
    write_results(path, dataclasses.replace(noisy.evaluation, tables=tables), noisy.verdict)
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory, noisy):
    """Three finished runs; a test that writes into one takes a copy."""
    folder = tmp_path_factory.mktemp("runs")
    return [
        _leave_run(folder / "0001", noisy, source="First-v0", gain=0.5),
        _leave_run(folder / "0002", noisy, source="Second-v0", gain=0.5),
        _leave_run(folder / "0003", noisy, source="Second-v0", gain=0.9),
    ]


@pytest.fixture(scope="module")
def comparison(runs):
    return compare_runs(runs)


@pytest.fixture(scope="module")
def aggregates(comparison):
    return aggregate(comparison)


def test_rows_hold_what_the_episodes_say(comparison, noisy):
    row = comparison.rows[0]
    results = {(one.name, one.guarded): one.episodes for one in noisy.evaluation.results}
    seeds = [results[name, True].returns for name in ("good-0", "good-1")]
    steady = results["steady", False].returns
    assert (row.run, row.source, row.policy, row.seeds) == ("0001", "First-v0", "good", 2)
    assert row.returns is not None
    np.testing.assert_allclose(row.returns.value, np.mean(seeds), rtol=1e-6)
    np.testing.assert_allclose(row.each_seed, np.mean(seeds - steady, axis=1), rtol=1e-5)
    assert row.gain is not None
    np.testing.assert_allclose(row.gain.value, np.mean(seeds - steady), rtol=1e-5)
    np.testing.assert_allclose(row.spread, np.std(steady, ddof=1), rtol=1e-6)
    assert row.answer == noisy.verdict.answer
    assert [one.answer for one in comparison.rows if one.policy != "good"].count("") == (
        len(comparison.rows) - 3
    )


def test_the_paired_test_is_that_of_scipy_and_is_adjusted_for_all_rows(comparison, noisy):
    results = {(one.name, one.guarded): one.episodes for one in noisy.evaluation.results}
    seeds = [results[name, True].returns for name in ("good-0", "good-1")]
    steady = results["steady", False].returns
    row = comparison.rows[0]
    expected = wilcoxon(np.mean(seeds, axis=0), steady, correction=True).pvalue
    assert len(steady) > 60
    np.testing.assert_allclose(row.p_value, expected, rtol=1e-3)
    # A controller is compared as it is, not behind a guard.
    (other,) = [
        one for one in comparison.rows[:9] if one.run == "0001" and one.role == "classical"
        and one.p_value is not None
    ]  # fmt: skip
    expected = wilcoxon(results[other.policy, False].returns, steady, correction=True).pvalue
    np.testing.assert_allclose(other.p_value, expected, rtol=1e-3)
    tested = [one for one in comparison.rows if one.p_value is not None]
    assert all(one.adjusted is None for one in comparison.rows if one.policy == one.incumbent)
    # Holm: the smallest of m is multiplied by m, and the order is kept.
    least = min(tested, key=lambda one: one.p_value)
    np.testing.assert_allclose(least.adjusted, min(1, len(tested) * least.p_value), rtol=1e-5)
    in_order = sorted(tested, key=lambda one: one.p_value)
    assert [one.adjusted for one in in_order] == sorted(one.adjusted for one in tested)


def test_sizes_are_shown_where_policies_differ_by_more_than_a_factor_of_two(
    runs, toy, noisy, tmp_path
):
    """The number in a policy is that in its file, read without a line of ours."""
    spec, rows = noisy.tables.spec, np.zeros((32, 1), np.float32)
    run = shutil.copytree(runs[0], tmp_path / "0001")
    assert {row.size for row in compare_runs([run]).rows} == {None}, "there are no policies"
    (run / "policies").mkdir()
    files = {name: run / f"policies/{name}.safetensors" for name in ("good-0", "good-1", "bad-0")}
    for path in files.values():
        save_policy(path, toy.proportional(0.5), spec, rows)
    equal = compare_runs([run])
    assert "size" not in comparison_text(equal, ())
    save_policy(files["bad-0"], ConstantPolicy(jnp.zeros(1)), spec, rows)
    stored = safetensors.numpy.load_file(files["good-1"])
    size = sum(array.size for name, array in stored.items() if name.startswith("policy/"))
    comparison = compare_runs([run])
    assert {row.policy: row.size for row in comparison.rows if row.size} == {"good": size, "bad": 1}
    title, _, heads, *_ = comparison_text(comparison, ()).splitlines()
    assert "differ in size (numbers in one) by more than a factor of two" in title
    assert re.search(r"policy +size +seeds", heads)


def test_gains_over_a_learner_are_paired_by_seed_and_start(runs, noisy):
    results = {(one.name, one.guarded): one.episodes.returns for one in noisy.evaluation.results}
    good = np.stack([results[f"good-{i}", True] for i in range(2)]).astype(np.float64)
    bad, steady = results["bad-0", True], results["steady", False]
    comparison = compare_runs(runs[:1], against="good")
    rows = {row.policy: row for row in comparison.rows}
    with jax.enable_x64(True):
        expected = crossed_interval(bad - good, level=comparison.level)
    gain = rows["bad"].gain
    np.testing.assert_allclose(gain.value, np.mean(bad - good), rtol=1e-6)
    np.testing.assert_allclose((gain.low, gain.high), (expected.low, expected.high), rtol=1e-6)
    np.testing.assert_allclose(rows["bad"].each_seed, (bad - good).mean(axis=1), rtol=1e-6)
    p_value = wilcoxon(bad, good.mean(axis=0), correction=True).pvalue
    np.testing.assert_allclose(rows["bad"].p_value, p_value, rtol=1e-3)
    np.testing.assert_allclose(rows["steady"].gain.value, np.mean(steady - good), rtol=1e-6)
    assert (rows["good"].gain, rows["good"].p_value, rows["log"].gain) == (None, None, None)
    text = comparison_text(comparison, ())
    assert "gain over good" in text
    assert "The gain is paired with good;" in text
    first = {row.policy: row for row in compare_runs(runs[:1], against="good-1").rows}
    np.testing.assert_allclose(first["bad"].each_seed, np.mean(bad - good[1]), rtol=1e-6)


def test_seeds_are_paired_in_order_as_many_as_both_have():
    rng = np.random.default_rng(0)
    first, second = rng.normal(1.0, 1.0, (3, 20)), rng.normal(0.0, 1.0, (2, 20))
    paired = paired_comparison(first, second, level=0.9)
    np.testing.assert_allclose(paired.each_seed, (first[:2] - second).mean(axis=1))
    with jax.enable_x64(True):
        expected = crossed_interval(first[:2] - second, level=0.9)
    gain = paired.gain
    np.testing.assert_allclose((gain.value, gain.low, gain.high), list(expected), rtol=1e-12)
    p_value = wilcoxon(first[:2].mean(axis=0), second.mean(axis=0)).pvalue
    np.testing.assert_allclose(paired.p_value, p_value, rtol=1e-4)
    assert len(paired_comparison(first, second[:1], level=0.9).each_seed) == 3


def test_a_policy_of_another_run_is_compared_on_the_same_starts_alone(runs, noisy, tmp_path):
    tables = noisy.tables
    kept = [row for row in tables.rows if row.group != "bad"]
    results = [one for one in noisy.evaluation.results if not one.name.startswith("bad-")]
    without = SimpleNamespace(
        tables=dataclasses.replace(tables, rows=kept),
        evaluation=dataclasses.replace(noisy.evaluation, results=results),
        verdict=noisy.verdict,
    )
    path = _leave_run(tmp_path / "0004", without, source="First-v0", gain=0.5)
    whole = next(row for row in compare_runs(runs[:1], against="bad").rows if row.policy == "good")
    rows = [
        row for row in compare_runs([path, *runs[:2]], against="bad").rows if row.policy == "good"
    ]
    assert [row.gain for row in rows] == [whole.gain] * 3
    message = r"no policy 'bad' was run on the starts of run 0004, which has good, .*--against"
    with pytest.raises(InputError, match=message):
        compare_runs([path, runs[1]], against="bad")


def test_only_what_differs_is_said_and_a_controller_once_a_plant(comparison):
    good = [row.settings for row in comparison.rows if row.policy == "good"]
    assert good == [{"algorithms.good.gain": one} for one in ("0.5", "0.5", "0.9")]
    assert all(row.settings == {} for row in comparison.rows if row.policy != "good")
    hasty = [row.run for row in comparison.rows if row.policy == "hasty"]
    assert hasty == ["0001", "0002"]


def test_the_score_over_plants_is_the_trimmed_mean_of_gains_in_deviations(comparison, aggregates):
    (one,) = [a for a in aggregates if a.learner == "good"]
    assert one.sources == ("First-v0", "Second-v0")
    rows = [r for r in comparison.rows if r.policy == "good" and r.run in ("0001", "0002")]
    scores = np.concatenate([np.asarray(row.each_seed) / row.spread for row in rows])
    np.testing.assert_allclose(one.score.value, trim_mean(scores, 0.25), rtol=1e-5)
    assert one.score.low <= one.score.value <= one.score.high
    assert one.profile[0] == 1.0
    assert list(one.profile) == sorted(one.profile, reverse=True)


@pytest.mark.parametrize("suffix", [".txt", ".md", ".tex", ".csv", ".json"])
def test_every_format_holds_every_row(comparison, aggregates, tmp_path, suffix):
    path = tmp_path / f"table{suffix}"
    write_comparison(path, comparison, aggregates)
    text = path.read_text()
    if suffix == ".csv":
        rows = list(csv.DictReader(text.splitlines()))
        assert len(rows) == len(comparison.rows)
        gain = comparison.rows[0].gain
        assert gain is not None
        assert float(rows[0]["gain"]) == gain.value
        assert rows[0]["algorithms.good.gain"] == "0.5"
    elif suffix == ".json":
        assert len(json.loads(text)["rows"]) == len(comparison.rows)
    elif suffix == ".tex":
        body = [line for line in text.splitlines() if line.endswith(r" \\")]
        first = [line for line in body if "0001" in line]
        assert {line.count(" & ") for line in first} == {body[0].count(" & ")}
        assert "_" not in text.replace(r"\_", "")
        assert r"\%" in text
    else:
        assert text.count("logged behaviour") == 2


def test_the_command_prints_the_table_and_json(runs, comparison, aggregates, capsys):
    assert main(["compare", *map(str, runs)]) == 0
    printed = capsys.readouterr().out
    assert printed.strip() == comparison_text(comparison, aggregates).strip()
    assert main(["compare", str(runs[0]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["level"] == 0.95


PREDICTED = (0.25, 0.125, 0.375)


@pytest.fixture(scope="module")
def runs_on_logs(tmp_path_factory, noisy):
    """Two runs on one log without a simulator; the first retuned the controller of the log."""
    folder = tmp_path_factory.mktemp("log_runs")
    log = next(row for row in noisy.tables.rows if row.role == "log")
    fits = [
        ActionFit(name, "valve", "%", Estimate(1.0, 0.5, 1.5), 2.0, explained, 4, 400, *kind)
        for name, explained, *kind in (
            ("steady", 0.9, None, "steady"),
            ("retuned-0", 0.75, None, "retuned", "retuned"),
            ("good-0", -0.5, None, "good", "learner"),
        )
    ]
    bounds = (PREDICTED[1], ">", 0.0, "EUR", True, "the predicted gain is above zero")
    gain = Clause("return", "predicted gain", *PREDICTED, *bounds)
    trial = Verdict("worth a trial", "Try it.", "retuned-0", "steady", "rule", (gain,), "")
    unknown = Verdict("cannot tell", "Only a log.", "good-0", "", "rule", (), "only a log")
    paths = []
    for number, (verdict, shown) in enumerate(((trial, fits), (unknown, fits[2:])), start=1):
        path = _leave_run(folder / f"000{number}", noisy, source="plant.h5", gain=0.5)
        tables = dataclasses.replace(noisy.tables, environment="", reference="", rows=(log,))
        result = dataclasses.replace(
            noisy.evaluation,
            tables=dataclasses.replace(tables, candidate=verdict.candidate, pooled=()),
            imitation=tuple(shown),
            source=dataclasses.replace(noisy.evaluation.source, name="plant.h5"),
        )
        write_results(path, result, verdict)
        paths.append(path)
    return paths


@pytest.mark.parametrize("suffix", [".txt", ".md", ".tex", ".html", ".csv", ".json"])
def test_a_run_on_a_log_shows_the_predicted_gain_and_its_answer(runs_on_logs, tmp_path, suffix):
    path = tmp_path / f"table{suffix}"
    comparison = compare_runs(runs_on_logs)
    write_comparison(path, comparison, aggregate(comparison))
    text = path.read_text()
    if suffix == ".json":
        found = {row["policy"]: row for row in json.loads(text)["rows"] if row["run"] == "0001"}
        predicted = found["retuned"]["predicted"]
        assert tuple(predicted[end] for end in ("value", "low", "high")) == PREDICTED
        assert found["retuned"]["answer"] == "worth a trial"
        assert found["good"]["predicted"] is None
        return
    if suffix == ".csv":
        table = csv.DictReader(text.splitlines())
        found = {row["policy"]: row for row in table if row["run"] == "0001"}
        ends = [float(found["retuned"][f"predicted_{end}"]) for end in ("gain", "low", "high")]
        assert tuple(ends) == PREDICTED
        assert found["retuned"]["verdict"] == "worth a trial"
        assert found["good"]["predicted_gain"] == ""
        return
    plain = text.replace("\N{NO-BREAK SPACE}", " ").replace("~", " ")
    assert "+0.25 [0.12, 0.38] EUR" in plain
    assert {"worth a trial", "cannot tell"} <= set(re.findall("worth a trial|cannot tell", text))
    assert "Run 0002 predicted no gain" in text
    assert "over a limit in" in text  # the log itself broke limits
    assert "trips" not in text
    assert "Wilcoxon" not in text


def test_a_log_is_listed_once_and_what_runs_today_is_marked(runs_on_logs):
    comparison = compare_runs(runs_on_logs)
    assert [row.run for row in comparison.rows if row.policy == "log"] == ["0001"]
    heads, *lines = comparison_tables(comparison, ())[0].cells
    column = heads.index("predicted gain over today's controller")
    assert [line[column] for line in lines if "steady" in line] == ["today's controller"]
    assert "gain over today's controller" not in heads


def test_pictures_of_runs_on_logs_show_the_predicted_gains(runs_on_logs, tmp_path):
    pytest.importorskip("matplotlib", reason="the pictures need the extra 'report'")
    comparison = compare_runs(runs_on_logs)
    (shown,) = _comparison_figures(comparison, ())
    assert isinstance(shown.picture, list)
    (panel,) = shown.picture
    assert isinstance(panel, Dots)
    assert panel.values == {"retuned": Estimate(*PREDICTED)}
    write_comparison(tmp_path / "gains.png", comparison, ())
    assert (tmp_path / "gains.png").stat().st_size > 0
    with pytest.raises(InputError, match="no gain is predicted"):
        write_comparison(tmp_path / "none.png", compare_runs(runs_on_logs[1:]), ())


def test_what_cannot_be_compared_is_named(runs, tmp_path, noisy, capsys):
    stopped = _leave_run(tmp_path / "0004", noisy, source="First-v0", gain=1.0, status="failed")
    with pytest.raises(InputError, match=r"0004 is failed, not finished"):
        compare_runs([runs[0], stopped])
    with pytest.raises(InputError, match="given twice"):
        compare_runs([runs[0], runs[0]])
    other = dataclasses.replace(noisy.tables, level=0.9)
    elsewhere = _leave_run(tmp_path / "0005", noisy, source="Second-v0", gain=0.5)
    write_results(elsewhere, dataclasses.replace(noisy.evaluation, tables=other), noisy.verdict)
    with pytest.raises(InputError, match="different confidence levels"):
        compare_runs([runs[0], elsewhere])
    with pytest.raises(InputError, match=r"ending of .*\.xlsx"):
        write_comparison(tmp_path / "table.xlsx", compare_runs(runs[:1]), ())
    for output, fault in (("new/a.md", "there is no folder"), ("a.pdf", "unknown ending of")):
        assert main(["compare", str(runs[0]), "--output", str(tmp_path / output)]) == 2
        said = capsys.readouterr()
        assert fault in said.err
        assert said.out == ""
    assert main(["compare"]) == 2
    assert "takes the directories of finished runs" in capsys.readouterr().err


def test_what_decides_no_result_is_no_difference(tmp_path, noisy):
    memory = [create_run(tmp_path, f"[devices]\n{line}\n", {}) for line in ("", 'memory = "2GB"')]
    assert _flat(memory[0], noisy.evaluation) == _flat(memory[1], noisy.evaluation)
    starts = [create_run(tmp_path, f"[evaluation]\nseed = {seed}\n", {}) for seed in (1, 2)]
    assert [_flat(run, noisy.evaluation) for run in starts] == [
        {"evaluation.seed": "1"},
        {"evaluation.seed": "2"},
    ]
    tables = dataclasses.replace(noisy.tables, environment="")
    of_log = dataclasses.replace(noisy.evaluation, tables=tables)
    assert _flat(starts[0], of_log) == _flat(starts[1], of_log) == {}
    scored = dataclasses.replace(of_log, tables=dataclasses.replace(tables, judge="gym:Hopper-v5"))
    assert _flat(starts[0], scored) != _flat(starts[1], scored)
