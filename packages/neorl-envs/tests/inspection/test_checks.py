"""Each check of the report against what a log was made to hold."""

import dataclasses
import json
import re
from html.parser import HTMLParser
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from scipy import stats

from neorl_core import Channel, CostChannel, Spec
from neorl_envs import Dataset
from neorl_envs.datasets import dataset_from_columns
from neorl_envs.inspection import dataset_report, report_html, report_text, standstills
from neorl_envs.inspection._contradictions import kolmogorov_smirnov


def logged(obs: np.ndarray, action: np.ndarray, ends: np.ndarray, **options: Any) -> Dataset:
    """A log with a period of 10 s; observations within -10 and 10, actions within 0 and 1."""
    n = len(obs)
    spec = Spec(
        obs=tuple(Channel(f"y{i}", "m", -10, 10) for i in range(obs.shape[1])),
        action=tuple(Channel(f"u{i}", "%", 0, 1) for i in range(action.shape[1])),
        cost=(CostChannel("c", "m", 1, "step"),),
        dt=10,
        horizon=n,
    )
    columns: dict[str, Any] = {
        "obs": obs,
        "action": action,
        "reward": np.zeros(n),
        "cost": np.zeros((n, 1)),
        "next_obs": np.where(ends[:, None], obs, np.roll(obs, -1, axis=0)),
        "terminated": np.zeros(n),
        "truncated": ends,
    }
    return dataset_from_columns(spec, **{**columns, **options})


@pytest.fixture(scope="module")
def delayed() -> Dataset:
    """Two inputs; y0 answers u0 after 7 steps with a lag of first order, y1 answers nothing."""
    random = np.random.default_rng(1)
    n = 6000
    action = random.uniform(size=(n, 2)).cumsum(axis=0) % 1
    y = np.zeros((n, 2))
    for t in range(1, n):
        held = action[t - 7, 0] if t >= 7 else 0.0
        y[t, 0] = 0.3 * y[t - 1, 0] + 2 * held
    y[:, 0] += 0.05 * random.normal(size=n)
    y[:, 1] = random.normal(size=n)
    return logged(y, action, np.arange(n) % 1500 == 1499)


def test_a_transport_delay_is_found(delayed: Dataset) -> None:
    report = dataset_report(delayed)
    (result,) = report["delays"]
    assert (result["action"], result["obs"], result["delay_s"]) == ("u0", "y0", 70.0)
    assert result["correlation"] > 0.8
    assert "u0 affects y0 after 70 s" in report_text(report)


def test_feedback_by_a_noisy_measurement_is_no_answer_of_the_plant() -> None:
    """A loop under PI answers noise at once; the plant answers what operators add after 8 steps."""
    random = np.random.default_rng(3)
    n, x, total = 9000, 0.0, 0.0
    sent, rows, target, aside = [0.5] * 7, [], 1.0, 0.0
    for t in range(n):
        if t % 200 == 0:
            target = random.uniform(0, 2)
        if t % 40 == 0:
            aside = random.uniform(-0.2, 0.2)
        y = x + 0.05 * random.normal()
        total += 0.01 * (target - y)
        sent.append(0.5 + 0.3 * (target - y) + total + aside)
        rows.append((y, sent[-1]))
        x = 0.95 * x + 0.1 * sent[-8]
    y, u = np.array(rows).T
    raw = [np.corrcoef(np.diff(u)[:-lag], np.diff(y)[lag:])[0, 1] for lag in range(1, 20)]
    assert np.argmax(np.abs(raw)) == 0  # what the plain changes say: one step
    assert raw[0] > 0.2
    report = dataset_report(logged(y[:, None], u[:, None], np.arange(n) % 1500 == 1499))
    (result,) = report["delays"]
    assert result["delay_s"] in (80.0, 90.0)
    assert result["acts"]


def test_an_action_that_a_controller_moves_is_not_said_to_be_a_cause() -> None:
    random = np.random.default_rng(4)
    n, sent, rows = 9000, [0.5] * 4, []
    for _ in range(n):
        y = sent[-4] + 0.3 * random.normal()
        # A twentieth of the moves is the action's own.
        sent.append(0.5 + 0.5 * (0.5 - y) + 0.03 * random.normal())
        rows.append((y, sent[-1]))
    y, u = np.array(rows).T
    report = dataset_report(logged(y[:, None], u[:, None], np.arange(n) % 1500 == 1499))
    assert report["delays"]
    text = report_text(report)
    assert "u0 moves together with y0" in text
    assert "affects" not in text


def test_a_behaviour_that_the_observation_decides_is_found() -> None:
    random = np.random.default_rng(2)
    n = 3000
    obs = random.uniform(-1, 1, (n, 2))
    action = np.stack(
        [0.5 + 0.25 * obs[:, 0], 0.5 + 0.4 * np.sign(obs[:, 1]), random.uniform(size=n)], axis=1
    )
    report = dataset_report(logged(obs, action, np.arange(n) == n - 1))
    linear, relay, free = report["behaviour"]
    assert linear["explained"] == pytest.approx(1, abs=1e-6)
    assert linear["repeatable"] > 0.98
    # Of a relay, a line explains (E|x|)^2 / E x^2 = 3/4; its neighbours agree save at the switch.
    assert relay["explained"] == pytest.approx(0.75, abs=0.03)
    assert relay["repeatable"] > 0.9
    assert free["explained"] < 0.02
    assert abs(free["repeatable"]) < 0.1
    correlation = np.corrcoef(np.hstack([action, obs]).T)[:3, 3:]
    np.testing.assert_allclose(report["correlation"], correlation, atol=1e-5)
    assert any(note.startswith("the observation determines u0") for note in report["notes"])


def test_no_action_is_said_to_affect_a_set_point(delayed: Dataset) -> None:
    """A correlation with a setpoint comes from the controller, not from the plant."""
    declared = delayed.attributes | {"setpoints": [{"name": "y0"}]}
    report = dataset_report(dataclasses.replace(delayed, attributes=declared))
    assert report["delays"] == []


def test_distances_are_those_of_scipy() -> None:
    random = np.random.default_rng(3)
    a, b = random.normal(size=301).round(1), random.normal(0.4, 1.2, 77).round(1)
    assert kolmogorov_smirnov(a, b) == pytest.approx(stats.ks_2samp(a, b).statistic, abs=1e-12)


def test_drift_of_the_last_episodes_is_found() -> None:
    n = 1000
    obs = np.random.default_rng(4).normal(size=(n, 1))
    obs[800:] += 5
    report = dataset_report(logged(obs, np.full((n, 1), 0.5), np.arange(n) % 100 == 99))
    assert report["drift"][0]["distance"] > 0.95
    assert "the last fifth of the episodes differs from the rest in y0" in report["notes"]
    # A variable that never moves: nothing decides it, nothing goes with it.
    assert report["behaviour"] == []
    assert "action u0 hardly moves: nothing can be learned about it" in report["notes"]
    assert not any("decides" in note for note in report["notes"])
    assert '<td data-label="correlates with">never moves</td>' in report_html(report)


def test_flat_lines_are_those_of_a_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    obs = random.integers(0, 2, (400, 3)).astype(float)
    obs[100:180, 1] = 1
    mask = random.random(400) > 0.02
    dataset = logged(obs, np.full((400, 1), 0.5), np.arange(400) % 50 == 49, mask=mask)
    expected = []
    for channel in range(3):
        keys = [
            (i // 50, v if m else i)
            for i, (v, m) in enumerate(zip(obs[:, channel], mask, strict=True))
        ]
        expected.append(max(len(list(run)) - 1 for _, run in groupby(keys)))
    columns: Any = dataset.transitions
    assert [s.longest[0][0] for s in standstills(columns.obs, dataset)] == expected
    monkeypatch.setattr("neorl_envs.datasets._checks.BLOCK", 7)
    assert [s.longest[0][0] for s in standstills(columns.obs, dataset)] == expected


def test_the_size_of_blocks_decides_nothing(
    delayed: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = dataset_report(delayed)
    monkeypatch.setattr("neorl_envs.datasets._checks.BLOCK", 977)
    parts = dataset_report(delayed)
    for kind in ("obs", "action"):
        for ours, theirs in zip(whole.pop(kind), parts.pop(kind), strict=True):
            assert ours == {**theirs, **{k: pytest.approx(theirs[k]) for k in ("mean", "std")}} | (
                {"step_std": pytest.approx(theirs["step_std"])} if "step_std" in theirs else {}
            )
    assert whole == parts


def test_numbers_are_those_of_numpy(delayed: Dataset) -> None:
    report = dataset_report(delayed)
    columns: Any = delayed.transitions
    for entry, values in zip(report["obs"], columns.obs.T.astype(np.float64), strict=True):
        for name, value in {
            "mean": values.mean(),
            "std": values.std(),
            "max": values.max(),
        }.items():
            assert entry[name] == pytest.approx(value, rel=1e-9, abs=1e-9)
        assert sum(entry["histogram"]) == len(values)


def test_what_is_doubtful_is_counted_and_said() -> None:
    """Actions and observations out of range, negative costs, long episodes, repeats, lies.

    Row N10: doubtful rows of a log are counted and named.
    """
    random = np.random.default_rng(6)
    obs, action = random.normal(size=(60, 1)), random.uniform(size=(60, 1))
    obs[20:30], action[20:30] = obs[10:20], action[10:20]
    obs[45] = 11.0
    action[[3, 4, 5]] = 1e6
    cost = np.zeros((60, 1))
    cost[7] = -1
    dataset = logged(obs, action, np.arange(60) % 10 == 9, cost=cost)
    rows: Any = dataset.transitions
    rows.next_obs[52] += 1
    dataset = dataclasses.replace(dataset, spec=dataclasses.replace(dataset.spec, horizon=9))
    report = dataset_report(dataset)
    assert report["contradictions"] == {
        "next_obs_differs": 1,
        "negative_costs": 1,
        "episodes_beyond_horizon": 6,
        "duplicate_episodes": 1,
    }
    assert report["duplicate_rows"] == 10
    assert report["action"][0]["outside"] == 3 / 60
    assert report["obs"][0]["outside"] == 1 / 60
    for words in (
        "action u0 is outside its range in 5.0% of rows",
        "obs y0 is outside its range in 1.7% of rows",
        "rows whose next_obs differs from the observation of the next row: 1",
        "rows with a negative cost: 1",
        "episodes longer than the horizon: 6",
        "episodes that repeat an earlier one: 1",
        "no timestamps are recorded, so gaps inside an episode cannot be seen",
    ):
        assert words in report["notes"], words


def test_gaps_are_counted() -> None:
    n = 40
    time = 10.0 * np.arange(n)
    time[20:] += 600
    time[33:] += 50
    obs = np.random.default_rng(7).normal(size=(n, 1))
    dataset = logged(
        obs,
        np.full((n, 1), 0.5),
        np.arange(n) % 20 == 19,
        time=1.7e9 + time,
        mask=np.arange(n) != 32,
        attributes={"time_origin": "1970-01-01T00:00:00Z"},
    )
    report = dataset_report(dataset)
    assert report["time"]["gaps"] == 2
    assert report["time"]["longest_gap_s"] == 600
    assert report["time"]["covered"] == pytest.approx(390 / (time[-1] + 10))
    assert "2 gaps, the longest 10 min; rows cover 37.1% of the time" in report["notes"]
    assert "from 2023-11-14 22:13:20 UTC" in report_text(report)
    zoned = {"provenance": {"configuration": {"log": {"time_zone": "Europe/Vienna"}}}}
    local = dataclasses.replace(dataset, attributes=dict(dataset.attributes) | zoned)
    assert "from 2023-11-14 23:13:20 CET" in report_text(dataset_report(local))


def test_a_step_into_a_masked_last_row_counts(toy_spec: Spec, toy_columns: dict) -> None:
    """The recipe of the README masks every last row, and both episodes of it have one step."""
    last = np.isin(np.arange(8), [2, 3, 7])
    report = dataset_report(dataset_from_columns(toy_spec, **toy_columns, mask=~last))
    assert report["action"][0]["moved"] == 1.0
    assert not any("hardly moves" in note for note in report["notes"])


class Page(HTMLParser):
    """Tags and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.text: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.opened.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "onload")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_needs_nothing_else_and_escapes_the_log(delayed: Dataset) -> None:
    odd = dataclasses.replace(delayed.spec.obs[0], name="<script>alert(1)</script>")
    dataset = dataclasses.replace(
        delayed,
        spec=dataclasses.replace(delayed.spec, obs=(odd, delayed.spec.obs[1])),
        attributes={"name": "<b>log</b>", "provenance": {"<i>": "</table>"}},
    )
    page = Page()
    text = report_html(dataset_report(dataset))
    page.feed(text)
    assert "script" not in page.opened
    assert not {"b", "i", "img", "link"} & {*page.opened}
    # On a narrow screen a row becomes a list, in which each cell repeats the head of its column.
    assert len(re.findall("<td", text)) == len(re.findall('<td data-label="[^"]', text)) > 0
    assert page.addresses == []
    assert not re.search(r"https?://", text)
    assert "<script>alert(1)</script>" in "".join(page.text)
    for note in dataset_report(dataset)["notes"]:
        assert note in "".join(page.text)


def test_a_report_is_plain_json_even_where_all_is_masked(toy_spec: Spec, toy_columns: dict) -> None:
    dataset = dataset_from_columns(toy_spec, **toy_columns, mask=np.zeros(8))
    report = dataset_report(dataset)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert "8 rows are masked" in report_text(report)
    assert report_html(report).startswith("<!doctype html>")
