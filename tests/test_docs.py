"""The pages lead somewhere, and what they show runs."""

import functools
import json
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest

import built
import command_pages
import documentation
import neorl_envs
import notebooks
from neorl_agents import ALGORITHMS
from neorl_core import InputError
from neorl_core.infrastructure.command_line import parse_options
from neorl_envs.datasets import todays_controller
from neorl_train import Config
from neorl_train.configuration import config_type

ROOT = Path(__file__).resolve().parent.parent
READMES = [ROOT / "README.md", *sorted(ROOT.glob("packages/*/README.md"))]
PACKAGES = sorted(path.name.removeprefix("neorl-") for path in (ROOT / "packages").glob("neorl-*"))
NOTICES = [ROOT / ".github/CONTRIBUTING.md", ROOT / ".github/SECURITY.md"]
PAGES = sorted((ROOT / "docs/pages").rglob("*.md"))
RESULTS = sorted(built.RESULTS.glob("*.md"))
DECISIONS = sorted((ROOT / "docs/decisions").glob("*.md"))
MADE = {
    (built.RESULTS.parent if name.startswith("results/") else built.SOURCE) / name
    for name in built.PAGES
} | {built.SOURCE / f"tutorials/{name}.ipynb" for name in notebooks.NOTEBOOKS}
"""Pages and notebooks that the build makes as a whole."""
NAMESPACES = re.compile(r"<!-- built: namespaces (\w+) -->")
"""Tables of links that the build makes."""


def links(page: Path) -> list[str]:
    """Targets of the relative links of a page, fragments aside."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    text = NAMESPACES.sub(lambda match: built.namespaces(match[1]), text)
    targets = re.findall(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)", text)
    return [target for target in targets if "://" not in target]


@pytest.mark.parametrize(
    "page",
    [*READMES, *NOTICES, *PAGES, *RESULTS, *DECISIONS],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        place = (page.parent / target).resolve()
        assert place in MADE or place.exists(), target


def test_every_page_can_be_reached_from_the_first() -> None:
    reached, waiting = set(), [ROOT / "docs/pages/index.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.suffix == ".md" and page not in MADE:
            reached.add(page)
            waiting += [(page.parent / target).resolve() for target in links(page)]
    assert {*PAGES, *RESULTS} <= reached, {*PAGES, *RESULTS} - reached


def clicks_from(first: Path) -> dict[Path, int]:
    """The least number of links from a page to every other one."""
    clicks, waiting = {first: 0}, [first]
    for page in waiting:
        for target in links(page) if page.suffix == ".md" and page not in MADE else ():
            place = (page.parent / target).resolve()
            if place not in clicks and place.is_file():
                clicks[place] = clicks[page] + 1
                waiting.append(place)
    return clicks


@pytest.mark.parametrize("first", ["README.md", "docs/pages/index.md"])
def test_what_most_readers_look_for_is_at_most_two_clicks_away(first: str) -> None:
    clicks = clicks_from(ROOT / first)
    pages = ROOT / "docs/pages"
    for place in (
        "explanation/benchmark", "faq", "learners/index", "plants/index", "tutorials/from-a-csv",
    ):  # fmt: skip
        assert clicks[pages / f"{place}.md"] == 1, place
    for page in (*pages.glob("learners/*.md"), *pages.glob("plants/*.md")):
        assert clicks[page] <= 2, page


def pages_missing_or_stale(root: Path, package: str) -> set[str]:
    """Namespaces of a package without their page of the reference, and pages of no namespace."""
    source = root / f"packages/neorl-{package}/src/neorl_{package}"
    places = {*(file.parent for file in source.glob("*/__init__.py")), *source.glob("*.py")}
    names = {place.stem for place in places if not place.name.startswith("_")}
    expected = {
        "index": f"neorl_{package}",
        **{name: f"neorl_{package}.{name}" for name in names},
    }
    pages = {
        page.stem: re.findall(r"(?m)^::: (\S+)", page.read_text())
        for page in (root / "docs/pages/reference" / package).glob("*.md")
    }

    def documented(name: str) -> bool:
        first, *others = pages.get(name) or [""]
        return first == expected.get(name) and all(one.startswith(f"{first}.") for one in others)

    return {name for name in {*expected, *pages} if not documented(name)}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_namespace_has_its_page_of_the_reference(package: str) -> None:
    assert pages_missing_or_stale(ROOT, package) == set()


def test_a_missing_a_stale_and_an_empty_page_are_noticed(tmp_path: Path) -> None:
    source, pages = tmp_path / "packages/neorl-x/src/neorl_x", tmp_path / "docs/pages/reference/x"
    for name in ("losses", "returns", "targets", "_internal"):
        (source / name).mkdir(parents=True)
        (source / name / "__init__.py").touch()
    (source / "costs.py").touch()
    (source / "__main__.py").touch()
    pages.mkdir(parents=True)
    for name in ("index", "losses", "old"):
        namespace = "neorl_x" if name == "index" else f"neorl_x.{name}"
        (pages / f"{name}.md").write_text(f"# {namespace}\n\n::: {namespace}\n")
    (pages / "targets.md").write_text("# neorl_x.targets\n")
    assert pages_missing_or_stale(tmp_path, "x") == {"costs", "old", "returns", "targets"}


def test_every_decision_is_listed_and_has_a_heading() -> None:
    listed = {*links(ROOT / "docs/decisions/index.md")} - {"../results/index.md"}
    assert listed == {page.name for page in DECISIONS} - {"index.md"}
    for page in DECISIONS:
        text = page.read_text()
        assert text.startswith("# ")
        assert len(text.split()) <= 250, f"{page.name}: a decision has 250 words at most"


def test_files_that_decisions_name_exist() -> None:
    for page in DECISIONS:
        for name in re.findall(r"`((?:docs|packages|tests|tools)/[\w./-]+)`", page.read_text()):
            assert (ROOT / name).exists(), f"{page.name}: {name}"


def options_of_run(words: list[str]) -> Config:
    """The options of ``neorl-train run``; what stands before them names a plant or a log."""
    first = next((at for at, word in enumerate(words) if word.startswith("--")), len(words))
    return parse_options(config_type(ALGORITHMS), words[first:], program="neorl-train run")


@pytest.mark.parametrize("page", ["extend", "run-a-benchmark", "vary-a-learner"])
def test_the_sizes_of_networks_that_a_page_states_are_those_of_a_run(page: str) -> None:
    text = " ".join((ROOT / f"docs/pages/how-to/{page}.md").read_text().split())
    assert re.search(r"`bc`, `td3_bc` and `iql` have .*two layers of 64.* batches of 128", text)
    config: Any = options_of_run([])
    sizes = {}
    for name in ("bc", "td3_bc", "iql", "awac", "fql", "rebrac", "dt"):
        settings = getattr(config.algorithms, name)
        sizes[name] = (settings.networks.hidden, settings.steps.batch_size)
    small = {name for name, size in sizes.items() if size == ((64, 64), 128)}
    assert small == {"bc", "td3_bc", "iql"}
    assert len({*sizes.values()}) > 2, "the sizes of the papers are not one size"


def test_the_first_run_of_the_tutorial_is_that_of_the_readme() -> None:
    """Which is run, below; so is that of the first page."""
    pages = ("README.md", "docs/pages/tutorials/first-run.md")
    texts = [(ROOT / page).read_text() for page in pages]
    shown = [re.findall(r"```python\n(.+?)```", text, flags=re.DOTALL) for text in texts]
    assert shown[0] == shown[1]
    assert shown[0][0] in (ROOT / "packages/neorl-train/README.md").read_text()


@pytest.mark.nightly
def test_the_pieces_of_the_tutorial_fit_together(tmp_path: Path) -> None:
    """Every block in order, as one program."""
    text = (ROOT / "docs/pages/tutorials/pieces.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.+?)```", text, flags=re.DOTALL))
    lines = output_of([sys.executable, "-W", "error", "-c", code], tmp_path).splitlines()
    assert re.fullmatch(r"gain -?[\d.]+ \[-?[\d.]+, -?[\d.]+\], p [\d.]+", lines[-1])
    assert (tmp_path / "bc.safetensors").is_file()


def test_no_page_and_no_message_installs_from_an_index() -> None:
    """Nothing of this repository is on one, and there a name could be anyone's."""
    sources = [*ROOT.glob("packages/*/src/**/*.py"), *READMES, *PAGES]
    dead = re.compile(r"pip install (?!--find-links)[^\n`|]*?(?<![/\w-])neorl-\w+")
    assert dead.search('pip install "neorl-deploy[http]"')
    assert not dead.search('pip install "./packages/neorl-deploy[http]"')
    found = {path.name: match[0] for path in sources if (match := dead.search(path.read_text()))}
    assert not found


def test_the_lines_that_the_faq_explains_are_printed() -> None:
    """Each is a part of a text in the sources, whatever names and numbers stand in it."""
    faq = (ROOT / "docs/pages/faq.md").read_text().partition("## Lines that you may see")[2]
    rows = re.findall(r"(?m)^\| ([^|]+) \|", faq)[1:]
    assert len(rows) > 10
    code = "\n".join(path.read_text() for path in ROOT.glob("packages/*/src/**/*.py"))
    texts = re.sub(r'"\s*f?"', "", code)  # Python joins texts that follow one another.
    missing = [one for row in rows for one in row.split(", ") if one not in texts]
    assert not missing


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_page_of_a_learner_shows_a_run_of_it(name: str) -> None:
    """Its options are read as the command reads them; some pages are shared."""
    page = {
        "sac_n": "sac-n-edac", "edac": "sac-n-edac", "cal_ql": "cql", "sac": "sac-td3",
        "td3": "sac-td3", "ppo": "on-policy", "reinforce": "on-policy", "reinforce_lag": "ppo-lag",
    }.get(name)  # fmt: skip
    text = (ROOT / f"docs/pages/learners/{page or name.replace('_', '-')}.md").read_text()
    assert {"## Pitfalls", "## Try it"} <= set(text.splitlines())
    assert "(../../results/" in text, "where its results are"
    (shown,) = re.findall(r"```console\nneorl-train run (.+?)```", text, flags=re.DOTALL)
    config = options_of_run(shlex.split(shown.replace("\\\n", " ")))
    shared = {
        "sac_n": "edac", "cal_ql": "cql", "td3": "sac", "reinforce": "ppo",
        "reinforce_lag": "ppo_lag",
    }.get(name, name)  # fmt: skip
    assert config.training.algorithms == (shared,)


@pytest.mark.parametrize(
    "page",
    [
        # A whole run in Python, which the demo's commands repeat: a minute, by night.
        pytest.param(page, marks=pytest.mark.nightly) if page.match("neorl-train/*") else page
        for page in READMES[1:]
    ],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_examples_of_a_readme_run(page: Path, tmp_path: Path) -> None:
    """Row N35: the Python examples of every README run; the first page shows that of train."""
    text = page.read_text()
    blocks = re.findall(r"```python\n(.+?)```", text, flags=re.DOTALL)
    assert blocks or "```console" in text, "a README shows how its package is used"
    command = [sys.executable, "-W", "error", "-c", "\n".join(blocks)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_readme_leads_from_a_table_to_a_dataset_file(
    tmp_path: Path, command: Callable[[list[str]], str]
) -> None:
    """Its three commands, and the reward that it asks for between the first two."""
    text = (ROOT / "README.md").read_text()
    (block,) = re.findall(r"```console\n(neorl-envs init .+?)```", text, flags=re.DOTALL)
    first, *others = (line.split()[1:] for line in block.strip().splitlines())
    assert [words[0] for words in (first, *others)] == ["init", "convert", "inspect"]
    rows = [f"2026-01-05T10:{m:02d}:00Z,{m % 7},{m}\n" for m in range(40)]
    (tmp_path / "plant.csv").write_text("".join(["time,level,valve\n", *rows]))

    assert "2 tags" in command(first)
    drafted = (tmp_path / "plant.toml").read_text()
    assert 'expression = "0"  # TODO' in drafted
    completed = drafted.replace('expression = "0"  # TODO', 'expression = "-abs(level - 3)"  #')
    (tmp_path / "plant.toml").write_text(completed)
    results = [command(words) for words in others]
    assert "reward is constant" not in "".join(results)
    assert "39 rows" in results[-1]


def test_the_tutorial_from_a_csv_declares_the_loop_of_the_faceplate(
    reactor: str, tmp_path: Path
) -> None:
    today = todays_controller(neorl_envs.read_dataset(tmp_path / "reactor.h5"))
    assert today.sentences[0] in reactor
    assert f"{12 * 1.2 / 25:g}" in reactor  # of the PI of CSTR-v0, in percent


@pytest.mark.nightly
def test_the_tutorial_from_a_csv_ends_as_it_says(reactor: str, tmp_path: Path) -> None:
    typed = cells_of("from-a-csv")[-1].removeprefix("!")  # of its notebook
    assert typed.strip() in reactor
    words = [sys.executable, "-m", "neorl_train", *typed.split()[1:]]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    output = done.stdout + done.stderr
    assert "WORTH A TRIAL" in output
    assert "gain of AIC_201_OP from -12 to -" in output
    # Another machine rounds otherwise, and then the search may end elsewhere near by.
    told, found = (
        [float(x) for x in re.findall(r"over AIC-201: (\S+) \[(\S+), (\S+)\]", text)[0]]
        for text in (reactor, output)
    )
    assert found[1] < told[0] < found[2]


def historian(tmp_path: Path, shared_data: Callable[..., Path]) -> str:
    """The text of the tutorial on a historian's export, its data and its script done."""
    text = (ROOT / "docs/pages/tutorials/historian.md").read_text()
    (block,) = re.findall(r"```python\n(.+?)```", text, flags=re.DOTALL)
    (place,) = re.findall(r'source = Path\("(.+)"\)', block)
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).symlink_to(shared_data("tep", "idv1", "u.dat").parents[1])
    output_of([sys.executable, "-W", "error", "-c", block], tmp_path)
    return text


def output_of(command: list[str], place: Path) -> str:
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_export_of_the_tutorial_is_converted_as_it_says(
    tmp_path: Path, shared_data: Callable[..., Path], command: Callable[[list[str]], str]
) -> None:
    """Its commands up to the training, with its two changes; every line it shows is printed."""
    text = historian(tmp_path, shared_data)
    commands = re.findall(r"```console\n(neorl-envs .+?)\n```", text)
    assert [typed.split()[1] for typed in commands] == ["init", "convert", "inspect"]
    changes, *_ = re.findall(r"```toml\n(.+?)```", text, flags=re.DOTALL)
    shown = re.findall(r"```text\n(.+?)```", text, flags=re.DOTALL)
    printed = []
    for typed in commands:
        words = shlex.split(typed)[1:]
        printed.append(command(words))
        if words[0] == "init":
            drafted = (tmp_path / "plant.toml").read_text()
            for line in changes.splitlines():
                key = line.split(" = ")[0]
                drafted, changed = re.subn(
                    rf"(?m)^(# )?{key} = .*$", lambda _, to=line: to, drafted, count=1
                )
                assert changed == 1
            (tmp_path / "plant.toml").write_text(drafted)
    for output, lines in zip(printed, shown[:3], strict=True):
        for line in lines.splitlines():
            assert line in output
    assert "<h2>Trends</h2>" in (tmp_path / "tep.html").read_text()
    train, _ = re.findall(r"```console\nneorl-train run (.+?)\n```", text)
    options_of_run(shlex.split(train))


@pytest.mark.nightly
def test_the_run_of_the_tutorial_answers_as_it_says(
    tmp_path: Path, shared_data: Callable[..., Path], command: Callable[[list[str]], str]
) -> None:
    """Two minutes; the numbers of a policy differ from machine to machine, the answer does not."""
    test_the_export_of_the_tutorial_is_converted_as_it_says(tmp_path, shared_data, command)
    text = (ROOT / "docs/pages/tutorials/historian.md").read_text()
    train, _ = re.findall(r"```console\nneorl-train run (.+?)\n```", text)
    words = ["neorl_train", "run", *shlex.split(train), "--output.no-tracking"]
    output = " ".join(output_of([sys.executable, "-m", *words], tmp_path).split())
    answer = re.findall(r"```text\n(CANNOT TELL .+?)\n", text)[0]
    assert " ".join(answer.split()) in output


NUMBER = r"-?\d+\.\d+"


@pytest.mark.nightly
def test_the_retuning_of_the_tutorial_answers_as_it_says(
    tmp_path: Path, shared_data: Callable[..., Path], command: Callable[[list[str]], str]
) -> None:
    """Its last blocks; the numbers of a plant model may differ by a third from page to machine."""
    test_the_export_of_the_tutorial_is_converted_as_it_says(tmp_path, shared_data, command)
    text = (ROOT / "docs/pages/tutorials/historian.md").read_text()
    _, added, settings = re.findall(r"```toml\n(.+?)```", text, flags=re.DOTALL)
    cost, tag = re.split(r"(?m)^(?=\[\[tag)", added)
    (name,) = re.findall(r"(?m)^name = .+$", tag)
    plant = tmp_path / "plant.toml"
    sections = re.split(r"(?m)^(?=#? ?\[)", plant.read_text())
    (old,) = [i for i, section in enumerate(sections) if name in section.splitlines()]
    sections[old] = f"{tag}\n"
    plant.write_text("".join(sections) + f"\n{cost}")
    convert = re.findall(r"```console\nneorl-envs (convert .+?)\n```", text)[0]
    command([*shlex.split(convert), "--overwrite"])
    (tmp_path / "tep.toml").write_text(settings)
    words = re.findall(r"```console\nneorl-train (run tep.toml)\n```", text)[0].split()
    ran = output_of([sys.executable, "-m", "neorl_train", *words, "--output.no-tracking"], tmp_path)
    shown = re.findall(r"```text\n(CANNOT TELL .+?)```", text, flags=re.DOTALL)[-1]
    for line in shown.splitlines():
        # White space as it comes, and a number for every number.
        words = [re.escape(word) for word in re.split(NUMBER, line.removesuffix("; ..."))]
        spaced = [re.sub(r"(?:\\ )+", r"\\s+", word) for word in words]
        found = re.search(NUMBER.join(spaced), ran)
        assert found, line
        pairs = zip(re.findall(NUMBER, found[0]), re.findall(NUMBER, line), strict=True)
        for is_now, was in pairs:
            assert float(is_now) == pytest.approx(float(was), rel=1 / 3), line


LIKE_FLAX = """
import dataclasses
import jax

@dataclasses.dataclass(frozen=True)
class MLP:
    features: tuple

    def init(self, key, x):
        return {"kernel": jax.random.normal(key, (len(x), self.features[-1]))}

    def apply(self, parameters, x):
        return x @ parameters["kernel"]
"""
"""A module with the two functions that one of Flax (linen) has."""


@pytest.mark.nightly
def test_the_code_for_newcomers_to_jax_runs(tmp_path: Path) -> None:
    """Also uncompiled and with NaN refused, as the page says; its block with Flax by a stand-in."""
    text = (ROOT / "docs/pages/how-to/jax.md").read_text()
    first, flax = re.findall(r"```python\n(.+?)```", text, flags=re.DOTALL)
    train = first.splitlines()[-1]
    ways = [f"with {way}:\n    {train}" for way in ("jax.disable_jit()", "jax.debug_nans(True)")]
    code = "\n".join([LIKE_FLAX, first, *ways, flax, train])
    lines = output_of([sys.executable, "-W", "error", "-c", code], tmp_path).splitlines()
    assert len([line for line in lines if line.startswith("loss of the value: ")]) == 6


@pytest.mark.nightly
def test_the_plant_of_the_how_to_is_one(tmp_path: Path) -> None:
    """Every block of the page in order, as one program."""
    text = (ROOT / "docs/pages/how-to/add-a-plant.md").read_text()
    blocks = re.findall(r"```python\n(.+?)```", text, flags=re.DOTALL)
    assert len(blocks) == 7
    command = [sys.executable, "-W", "error", "-c", "\n".join(blocks)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_equalities_of_the_page_for_newcomers_hold() -> None:
    text = (ROOT / "docs/pages/how-to/coming-from.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(code, "coming-from.md", "exec"), {})


def command_lines(text: str) -> list[str]:
    """The command lines of a page that call one of the programs, continuation lines joined."""
    blocks = "\n".join(re.findall(r"```console\n(.+?)```", text, flags=re.DOTALL))
    return re.findall(r"(?:^|\s)(neorl-(?:envs|train|deploy) .+)", blocks.replace("\\\n", " "))


page_of = functools.cache(command_pages.page_of)


def options_of(line: str) -> tuple[str, list[str], set[str]]:
    """The command of a line, the options that it uses, and all options in its ``--help``.

    Options with a dot are left out: ``--help`` of a run shows their sections only.
    """
    program, command, *words = shlex.split(line, comments=True)
    _, _, section = page_of(program).partition(f"\n## {command}\n")
    known = set(re.findall(r"--[a-z][\w.-]*", section.partition("\n## ")[0]))
    used = [word.partition("=")[0] for word in words if word.startswith("--")]
    return command, [option for option in used if "." not in option], known


@pytest.mark.parametrize("page", [*READMES, *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_option_on_a_page_exists(page: Path) -> None:
    for line in command_lines(page.read_text()):
        command, used, known = options_of(line)
        assert not known or {*used} <= known | {"--help", "--version", "--json"}, (command, line)


def test_an_option_that_does_not_exist_is_noticed() -> None:
    (line,) = command_lines("```console\n$ neorl-train run A \\\n  --algorithms iql\n```")
    _, used, known = options_of(line)
    assert used == ["--algorithms"]
    assert "--algorithms" not in known


def test_the_variation_of_the_how_to_trains_beside_the_original(tmp_path: Path) -> None:
    text = (ROOT / "docs/pages/how-to/vary-a-learner.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    lines = output_of([sys.executable, "-W", "error", "-c", code], tmp_path).splitlines()
    expected = ["IQL-0", "IQL-1", "NoisyIQL-0", "NoisyIQL-1"]
    assert [line.split()[0] for line in lines] == expected
    assert all(np.isfinite(float(line.split()[1])) for line in lines)


@pytest.mark.nightly
def test_the_script_of_the_treasure_hunt_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = str(ROOT / "docs/pages/how-to/templates/treasure_hunt.py")
    few = ["--agents", "2", "--turns", "10", "--chunk", "2", "--epochs"]
    for epochs in ("2", "4"):
        monkeypatch.setattr(sys, "argv", [script, str(tmp_path / "hunt"), *few, epochs])
        runpy.run_path(script, run_name="__main__")
    assert "epoch 4: " in capsys.readouterr().out
    lines = (tmp_path / "hunt/epochs.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [0, 1, 2, 3]
    monkeypatch.setattr(sys, "argv", [script, str(tmp_path / "hunt"), "--agents", "3"])
    with pytest.raises(InputError, match="its number of agents is 2, expected 3"):
        runpy.run_path(script, run_name="__main__")


@pytest.mark.nightly
def test_the_retuning_of_the_how_to_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """As it stands on the page: what changed, then a line for every candidate."""
    text = (ROOT / "docs/pages/how-to/retune.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    with jax.numpy_rank_promotion("allow"):
        exec(compile(code, "retune.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("gain of T_c ")
    assert any(line.startswith("today ") for line in lines)


@pytest.mark.nightly
def test_a_published_log_is_scored_and_swept(tmp_path: Path) -> None:
    """Both blocks in order; a log of the plant in the form of the file stands in."""
    text = (ROOT / "docs/pages/how-to/published-log.md").read_text()
    blocks = re.findall(r"```python\n(.+?)```", text.split("## A log of DSRL")[0], flags=re.DOTALL)
    assert len(blocks) == 2
    plant = neorl_envs.make("DMSD-v0")
    log = neorl_envs.collect_log(plant, n_steps=1000, key=jax.random.key(0))
    rows = log.transitions
    np.savez(
        tmp_path / "DMSD-high-100000-train.npz",
        obs=rows.obs,
        action=rows.action / 30,
        reward=rows.reward,
        next_obs=rows.next_obs,
        done=rows.terminated.astype(np.float32),
        truncated=rows.truncated.astype(np.float32),
    )
    command = [sys.executable, "-W", "error", "-c", "\n".join(blocks)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["0.5", "0.7", "0.9"]


def test_a_limit_is_declared_for_a_log_in_the_layout_of_dsrl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block of the page; a file of two episodes in that layout stands in."""
    text = (ROOT / "docs/pages/how-to/published-log.md").read_text()
    (block,) = re.findall(
        r"```python\n(.+?)```", text.split("## A log of DSRL")[1], flags=re.DOTALL
    )
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(9, 3)).astype(np.float32)
    ends = np.arange(8) % 4 == 3
    with h5py.File(tmp_path / "SafetyCarCircle-v0-100-1450.hdf5", "w") as file:
        file["observations"], file["next_observations"] = obs[:-1], obs[1:]
        file["actions"] = rng.uniform(-1, 1, (8, 2)).astype(np.float32)
        file["rewards"], file["costs"] = np.ones(8, np.float32), np.arange(8) % 2.0
        file["terminals"], file["timeouts"] = np.zeros(8, bool), ends
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "published-log.md", "exec"), {})
    (cost,) = neorl_envs.read_dataset(tmp_path / "car_circle.h5").spec.cost
    assert (cost.name, cost.limit, cost.per) == ("cost", 20.0, "episode")


@pytest.mark.nightly
def test_the_critics_of_the_how_to_are_fitted(tmp_path: Path) -> None:
    """Every block of the page in order, as one program."""
    text = (ROOT / "docs/pages/how-to/safety-critic.md").read_text()
    blocks = re.findall(r"```python\n(.+?)```", text, flags=re.DOTALL)
    assert len(blocks) == 2
    command = [sys.executable, "-W", "error", "-c", "\n".join(blocks)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
def test_the_federation_of_the_how_to_trains(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs/pages/how-to/train-across-sites.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    with jax.numpy_rank_promotion("allow"):
        exec(compile(code, "train-across-sites.md", "exec"), {})
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("{'north': 'answered', 'south': 'answered', 'east': 'answered'}")


def test_the_menu_leads_to_every_page() -> None:
    entries, menu = documentation.navigation(ROOT / "docs/pages"), set()
    while entries:
        entry = entries.pop()
        values = entry.values() if isinstance(entry, dict) else [entry]
        for value in values:
            entries.extend(value) if isinstance(value, list) else menu.add(value)
    assert menu >= {page.relative_to(ROOT / "docs/pages").as_posix() for page in PAGES}
    assert {ROOT / "docs/pages" / page for page in menu} <= {*PAGES, *MADE}


def test_roles_and_unresolved_links_on_a_page_are_noticed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(documentation, "BUILT", tmp_path)
    page = tmp_path / "page.html"
    page.write_text("<p>See :func:<code>guard</code> and [guard][neorl_safety.guard].</p>")
    assert documentation.raw(page) == ["page.html: ][neorl_safety.guard]"]
    page.write_text("<p>See :func:guard.</p><pre>:func:guard [a][b]</pre>")
    assert documentation.raw(page) == ["page.html: :func:guard."]
    page.write_text(r"<p>The loss $$x^2$$, or <i>\frac{1}{2}</i>.</p><code>\frac</code>")
    assert documentation.raw(page) == ["page.html: $$x^2$$,", r"page.html: \frac{1}{2}."]


def test_formulas_are_typeset_and_code_is_left(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        r'<p>With <span class="arithmatex">\(a &lt; b\)</span>:</p>'
        r'<div class="arithmatex">\[x^2\]</div><code>\(a\)</code>'
        rf'<span class="arithmatex">\({"x" * 50}\)</span>'
    )
    documentation.typeset(page, lambda latex, display: f"<math>{display}: {latex}</math>")
    assert page.read_text() == (
        "<p>With <math>inline: a < b</math>:</p>"
        '<div class="formula"><math>block: x^2</math></div>'
        r"<code>\(a\)</code>"
        f'<span class="formula"><math>inline: {"x" * 50}</math></span>'
    )


@pytest.mark.parametrize(
    "remote", ["git@example.org:owner/neorl.git", "https://example.org/owner/neorl"]
)
def test_a_repository_on_the_web_is_linked_and_no_other(remote: str) -> None:
    lines = documentation.about_the_checkout(remote).splitlines()
    assert "repo_url: https://example.org/owner/neorl" in lines
    version, *others = documentation.about_the_checkout("/srv/neorl").splitlines()
    assert re.fullmatch(r"copyright: neorl \d+\.\d+\.\d+, Apache-2.0", version)
    assert others == []


def test_only_what_was_written_can_be_edited(tmp_path: Path) -> None:
    page, start = tmp_path / "page.html", '<a href="https://example.org/neorl/edit/main/docs'
    edit = '" title="Edit this page" class="md-icon" rel="edit">\n<svg/></a>'
    page.write_text(
        f'<a href="x" data-md-component="source">neorl</a>{start}/pages/learners/iql.md{edit}'
        f"{start}/pages/results/guard.md{edit}{start}/pages/changelog.md{edit}"
    )
    documentation.correct_repository_links(page)
    assert page.read_text() == (
        f'<a href="x">neorl</a>{start}/pages/learners/iql.md{edit}{start}/results/guard.md{edit}'
    )


def cells_of(name: str) -> list[str]:
    page = (ROOT / f"docs/pages/tutorials/{name}.md").read_text()
    made = notebooks.notebook(page, name)
    return ["".join(x["source"]) for x in made["cells"] if x["cell_type"] == "code"]


@pytest.mark.parametrize("name", notebooks.NOTEBOOKS)
def test_a_notebook_has_the_code_and_the_commands_of_its_page(name: str) -> None:
    page = (ROOT / f"docs/pages/tutorials/{name}.md").read_text()
    cells = cells_of(name)
    for block in re.findall(r"```python\n(.+?)\n```", page, flags=re.DOTALL):
        assert block in cells
    lines = {line for cell in cells for line in cell.splitlines()}
    for block in re.findall(r"```console\n(.+?)```", page, flags=re.DOTALL):
        whole = block.replace("\\\n", " ").splitlines()
        assert {f"!{line}" for line in whole} <= lines
    assert not any("WORTH A TRIAL" in cell for cell in cells)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["first-run", "compare-learners", "pieces"])
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    """Cell by cell in one folder, to a first verdict that is *deploy*; another page asks its reader
    to complete a file."""
    code = ""
    for cell in cells_of(name):
        if cell.startswith("%%writefile "):
            head, _, text = cell.partition("\n")
            (tmp_path / head.split()[1]).write_text(text)
        elif cell.startswith("!"):
            for line in cell.splitlines():
                program, *words = shlex.split(line.removeprefix("!"))
                module = program.replace("-", "_")
                output_of([sys.executable, "-m", module, *words], tmp_path)
        else:
            code += f"{cell}\n"
    if code:
        output = output_of([sys.executable, "-W", "error", "-c", code], tmp_path)
        assert ("DEPLOY" in output and "DO NOT" not in output) == (name == "first-run")
