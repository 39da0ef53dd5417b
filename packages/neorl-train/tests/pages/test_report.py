import dataclasses
import html.parser
import io
import json
import re
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import Channel, InputError
from neorl_core.control import ConstantPolicy
from neorl_core.infrastructure import head
from neorl_envs import collect_log
from neorl_safety.constraints import action_constraints, constraints_to_dict
from neorl_train import evaluate_offline, verdict
from neorl_train._job.evaluation import write_results
from neorl_train.judging import Estimate, table_text
from neorl_train.pages import _style, print_summary, write_report
from neorl_train.pages._html import Group, Html, tag
from neorl_train.pages._inputs import read_inputs
from neorl_train.pages.sections._about import data_facts, what_it_says

pytest.importorskip("matplotlib", reason="the pictures need the extra 'report'")

VOID = {"meta", "link", "rect", "line", "circle", "path", "use", "br"}


class Page(html.parser.HTMLParser):
    """Collects what a test asks for, and checks that every element is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.headings, self.tables = [], [], [], [], []
        self.words, self.pictures, self.styles = [], 0, []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name, attributes):
        given = dict(attributes)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given[key] for key in ("href", "src", "xlink:href") if key in given]
        self.pictures += name == "svg"
        if name == "table":
            self.tables.append("")
        if name not in VOID:
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.handle_starttag(name, attributes)
        if name not in VOID:
            self.open.pop()

    def handle_endtag(self, name):
        if name not in VOID:
            assert self.open.pop() == name

    def handle_data(self, data):
        self.words.append(data)
        if self.open and self.open[-1] in ("h1", "h2", "h3"):
            self.headings.append(data)
        if "table" in self.open:
            self.tables[-1] += f"{data} "

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def validations():
    rng = np.random.default_rng(0)
    for step in (100, 200, 300):
        for seed in (0, 1):
            metrics = {
                "plant_return": float(rng.normal(-5)),
                "plant_cost_load": float(rng.uniform(1, 9)),
                "held_out_distance": float(rng.uniform(0.01, 0.1)),
            }
            line = {"kind": "validation", "algorithm": "good", "seed": seed, "step": step}
            yield {**line, "time": 0.0, "metrics": metrics}


WARNING = "episodes end at values of time beyond those of all other rows"
IDENTIFIED = "pid: level by valve: gain 0.05, delay 4, share 0.93"


@pytest.fixture(scope="module")
def run(tmp_path_factory, noisy, toy):
    """A finished run of the scalar plant; of the further episodes it shows one."""
    path = tmp_path_factory.mktemp("runs") / "0007"
    path.mkdir()
    traces = noisy.evaluation.traces
    further = [trace.label for trace in traces if trace.label.startswith("start ")]
    few = tuple(trace for trace in traces if trace.label not in further[1:])
    write_results(path, dataclasses.replace(noisy.evaluation, traces=few), noisy.verdict)
    limits = constraints_to_dict(action_constraints(toy.Line().spec, [0.5]))
    (path / "constraints.json").write_text(json.dumps(limits))
    (path / "config.toml").write_text('[data]\nsource = "<Line>"\n')
    (path / "run.json").write_text(
        json.dumps(
            {
                **head("run", 1),
                "id": "abc",
                "seeds": [0, 1],
                "versions": {"jax": "0.10"},
                "controllers": [IDENTIFIED],
                "warnings": [WARNING],
            }
        )
    )
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in validations()))
    return path


@pytest.fixture(scope="module")
def page(run):
    return Page(write_report(run).read_text())


def test_it_repeats_a_warning_about_the_log_as_the_summary_does(run, page):
    summary = io.StringIO()
    print_summary(run, summary)
    assert WARNING in page.text
    assert WARNING in " ".join(summary.getvalue().split())


def test_it_leans_on_nothing_outside(run, page):
    text = (run / "report.html").read_text()
    assert "<script" not in text
    assert "@import" not in text
    outside = [link for link in page.links if not link.startswith(("#", "data:"))]
    assert outside == []
    assert re.findall(r"url\((?!#)", text) == []
    assert "default-src 'none'" in text
    inside = {link[1:] for link in page.links if link.startswith("#")}
    assert inside <= set(page.ids)
    assert len(page.ids) == len(set(page.ids)), "an identifier stands twice"


def test_the_verdict_comes_first_with_its_clauses(page, noisy):
    assert page.headings[0] == "Can good-0 take over Line-v0?"
    assert page.headings[1] == "Why"
    before = page.text[: page.text.index("Why Why") if "Why Why" in page.text else 2000]
    deciding = [c for c in noisy.verdict.clauses if not c.holds] or noisy.verdict.clauses
    for clause in deciding:
        assert clause.sentence in page.text
    assert "deploy" in before
    for clause in noisy.verdict.clauses:
        assert clause.name in page.tables[0]
        assert clause.unit in page.tables[0]
    for words in (
        "A typical episode",
        "The worst episode",
        "Return and cost",
        "Who acted",
        "Learning curves",
    ):
        assert any(words in heading for heading in page.headings)


def test_a_share_is_printed_in_percent_alone(page, noisy):
    """The estimate, both ends of its interval, the number that is compared, and its limit."""
    shares = [one for one in noisy.verdict.clauses if one.is_share]
    assert shares
    for one in shares:
        row = page.tables[0].partition(one.statistic)[2][:100]
        assert row.count("%") == 5, row
        assert not re.search(r"\b[01]\.\d\d\b", row), row


def test_every_table_of_results_has_the_classical_controllers(page):
    results = [table for table in page.tables if "good-0" in table or "good (2)" in table]
    assert len(results) == 10, (
        "benefit, all starts, three episodes, returns, endings, two costs, pooled seeds"
    )
    assert all("steady" in table for table in results)
    assert all("%" in table or "EUR" in table or "m" in table for table in results)


def test_pictures_follow_the_colours_of_the_page(run, page):
    text = (run / "report.html").read_text()
    assert text.count("<figure") >= 5
    assert "var(--c0)" in text
    assert "var(--limit)" in text
    pictures = "".join(re.findall(r"<figure.*?</figure>", text, flags=re.DOTALL))
    for colour in (_style.INK, _style.MUTED, _style.GRID, _style.LIMIT, _style.CLASSICAL):
        assert colour not in pictures
    titles = re.findall(r"<title id=[^>]*>([^<]+)</title>", pictures)
    assert len(titles) == text.count("<figure")


def test_the_same_run_gives_the_same_page(run, page):
    first = (run / "report.html").read_bytes()
    assert write_report(run).read_bytes() == first


@pytest.fixture
def no_pictures(monkeypatch):
    """As without matplotlib: pictures are most of the time that a page takes."""
    monkeypatch.setattr(_style, "installed", lambda: False)


def test_without_matplotlib_the_numbers_remain(run, tmp_path, no_pictures):
    text = write_report(shutil.copytree(run, tmp_path / "run")).read_text()
    page = Page(text)
    assert 'pip install "./packages/neorl-train[report]"' in page.text
    assert "<figure" not in text
    assert len(page.tables) >= 7


def test_the_level_of_the_tables_is_said_everywhere(tmp_path, noisy, no_pictures):
    for level, percent, other in ((0.9, "90 %", "95 %"), (0.95, "95 %", "90 %")):
        tables = dataclasses.replace(noisy.tables, level=level)
        decided = verdict(tables)
        assert percent in decided.rule
        assert other not in decided.rule
        write_results(tmp_path, dataclasses.replace(noisy.evaluation, tables=tables), decided)
        stream = io.StringIO()
        print_summary(tmp_path, stream)
        page = Page(write_report(tmp_path).read_text()).text
        assert page.count(percent) >= 8
        assert percent in stream.getvalue()
        assert other not in page + stream.getvalue()


def test_every_place_shows_the_sign_of_the_end_that_decides(tmp_path, noisy, no_pictures):
    """A small end beside a large one would be printed as 0, as if the gain were certain."""
    wide = Estimate(18.0, -0.0004, 30.804)
    rows = tuple(
        dataclasses.replace(row, difference=row.difference and wide) for row in noisy.tables.rows
    )
    pooled = tuple(
        dataclasses.replace(row, difference=wide, fresh_seeds=wide) for row in noisy.tables.pooled
    )
    tables = dataclasses.replace(noisy.tables, rows=rows, pooled=pooled)
    write_results(tmp_path, dataclasses.replace(noisy.evaluation, tables=tables), verdict(tables))
    stream = io.StringIO()
    print_summary(tmp_path, stream)
    page = Page(write_report(tmp_path).read_text()).text
    for text in (page, stream.getvalue(), table_text(tables)):
        shown = re.findall(r"\[([^]\s]+),\s*3[01][.\d]*\]", text)
        assert len(shown) >= 2
        assert set(shown) == {"\N{MINUS SIGN}0.0004"}


def test_what_others_wrote_is_escaped(run, page):
    assert "<Line>" not in (run / "report.html").read_text()
    assert '"<Line>"' in page.text
    assert tag("p", "<b>", class_="a", aria_label='"').text == (
        '<p class="a" aria-label="&quot;">&lt;b&gt;</p>'
    )
    assert tag("p", Html("<b></b>")).text == "<p><b></b></p>"
    assert Group("x").title == "x"


def test_what_a_controller_was_fitted_to_stands_beside_the_log(page):
    assert IDENTIFIED in page.text


def test_a_run_without_records_is_reported_all_the_same(tmp_path, noisy, no_pictures):
    write_results(tmp_path, noisy.evaluation, noisy.verdict)
    page = Page(write_report(tmp_path).read_text())
    assert "no records of its training" in page.text


def test_a_damaged_run_is_named(tmp_path, run, noisy):
    with pytest.raises(InputError, match=r"evaluation\.json: there is no such file"):
        write_report(tmp_path)
    write_results(tmp_path, noisy.evaluation, noisy.verdict)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"run\.json is damaged"):
        write_report(tmp_path)


@pytest.fixture(scope="module")
def logged(tmp_path_factory, noisy, toy):
    """A run on a log alone, of somebody else's data."""
    path = tmp_path_factory.mktemp("logged")
    plant = toy.Line()
    log = collect_log(plant, n_steps=16 * plant.horizon, key=jax.random.key(5), spread=0.1)
    name = {"name": "DMSD-train", "attribution": "Somebody, CC-BY", "provenance": {}}
    name["provenance"] = {"format": "NeoRL-2 npz"}
    log = dataclasses.replace(log, attributes=name)
    result = evaluate_offline(
        {"iql-0": ConstantPolicy(jnp.zeros(1))},
        dataset=log,
        held_out=log,
        training=log.transitions,
        candidate="iql-0",
    )
    write_results(path, result, verdict(result.tables))
    return path


def test_a_log_alone_is_reported_with_its_owner(logged):
    page = Page(write_report(logged).read_text())
    assert "cannot tell" in page.text
    assert "no simulator" in page.text
    assert "Can iql-0 take over the plant in DMSD-train?" in page.text
    assert "Third-party data: Somebody, CC-BY." in page.text
    assert "By the formula of NeoRL-2 DMSD" in page.text
    distances = next(table for table in page.tables if "Variance explained" in table)
    assert "linear feedback" in distances


def test_a_policy_worse_than_a_straight_line_is_marked(logged):
    inputs = read_inputs(logged)
    first, *rest = inputs.evaluation.imitation
    assert first.policy == "mean action"
    beyond = Estimate(0.2, 0.1, 0.3)
    poor = dataclasses.replace(first, policy="iql-0", family="learner", beyond_line=beyond)
    evaluation = dataclasses.replace(inputs.evaluation, imitation=(*rest[:1], poor))
    write_results(logged, evaluation, inputs.verdict)
    text, stream = write_report(logged).read_text(), io.StringIO()
    sentence = "iql-0 is worse than a straight line: "
    assert f'<strong class="fails">{sentence}' in text
    assert '<span class="fails">+0.20\N{NO-BREAK SPACE}[0.10,' in text
    print_summary(logged, stream)
    assert sentence in stream.getvalue()
    write_results(logged, inputs.evaluation, inputs.verdict)


def test_what_a_log_does_not_say_is_not_claimed(logged):
    inputs = read_inputs(logged)
    assert "assumed" not in data_facts(inputs).text
    tables = inputs.evaluation.tables
    unknown = dataclasses.replace(tables.spec, obs=(Channel("obs_0", "?", 0.0, 1.0),))
    tables = dataclasses.replace(tables, spec=unknown)
    foreign = dataclasses.replace(
        inputs,
        evaluation=dataclasses.replace(inputs.evaluation, tables=tables),
        constraints=constraints_to_dict(action_constraints(tables.spec)),
    )
    assert "60 s (assumed, because the file does not state it)" in data_facts(foreign).text
    text = what_it_says(foreign).text
    assert "The guard keeps every action within these limits, whatever the policy requests:" in text
    assert "may change at any rate" in text


def test_a_plant_without_costs_is_judged_by_its_return(toy, tmp_path, no_pictures):
    plant = toy.Line(costs=0)
    result = toy.evaluate(plant, {"p-0": toy.proportional(0.6)}, candidate="p-0", n_starts=100)
    judged = verdict(result.tables)
    assert judged.answer == "deploy"
    assert [clause.name for clause in judged.clauses] == ["return", "worst episode"]
    write_results(tmp_path, result, judged)
    page = Page(write_report(tmp_path).read_text())
    assert "No policy caused any cost." in page.text
    print_summary(tmp_path, io.StringIO())


FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


def visit(browser, path, tmp_path, *flags):
    command = [browser, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", *flags]
    return subprocess.run([*command, path.as_uri()], capture_output=True, text=True, check=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_it(run, page, tmp_path, scheme, browser):
    from matplotlib.image import imread

    shot = tmp_path / "shot.png"
    dark = ("--blink-settings=preferredColorScheme=0",) if scheme == "dark" else ()
    seen = visit(
        browser,
        run / "report.html",
        tmp_path,
        f"--screenshot={shot}",
        "--window-size=1280,3000",
        *dark,
    )
    assert "CONSOLE" not in seen.stderr, "the page's policy refuses and reports outside requests"
    pixels = imread(shot)[..., :3]
    assert pixels.shape[:2] == (3000, 1280)
    background = pixels[5, 5]
    assert (background.mean() < 0.2) == (scheme == "dark")
    inked = (np.abs(pixels - background).max(axis=-1) > 0.1).mean(axis=1)
    assert (inked.reshape(30, 100).max(axis=1) > 0.02).mean() > 0.9, "mostly blank"


def test_a_browser_understands_it(run, page, tmp_path, browser):
    seen = visit(browser, run / "report.html", tmp_path, "--dump-dom")
    shown = Page(seen.stdout[seen.stdout.index("<html") :])
    assert [h for h in shown.headings if h.strip()] == [h for h in page.headings if h.strip()]
    assert shown.pictures == page.pictures
    assert "CONSOLE" not in seen.stderr


def test_text_states_time_in_the_unit_of_the_axis_beside_it():
    for steps, words in ((4, "240 s"), (90, "90 min"), (400, "6.67 h")):
        assert _style.duration(steps, 60.0) == words
        assert words.endswith(f" {_style.time_axis(steps, 60.0)[1]}")
    assert _style.duration(90, 60.0, axis=400) == "1.5 h"
