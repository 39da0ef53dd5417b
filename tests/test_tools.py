"""The workspace tools notice what they are there to notice."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

import bounds
import callers
import changelog
import check_changed
import check_isolated
import faces
import nightly
import release
import sizes
import test_times

TOOLS = sorted(Path(bounds.__file__).parent.glob("*.py"))
CHANGELOG = """# Changelog of neorl-core

The format follows Keep a Changelog; versions follow semantic versioning.

## Unreleased

### Added

- A new loss.

### Fixed

## 0.1.0 - 2026-01-31

### Added

- The first functions.
"""


@pytest.fixture
def workspace(checkout: Path, tmp_path: Path) -> Path:
    """The packages' metadata in a folder of its own."""
    for folder in (checkout / "packages").glob("neorl-*"):
        target = tmp_path / "packages" / folder.name
        target.mkdir(parents=True)
        shutil.copy(folder / "pyproject.toml", target)
        title = f"# Changelog of {folder.name}\n\n## Unreleased\n\n### Added\n\n- A thing.\n"
        (target / "CHANGELOG.md").write_text(title)
    return tmp_path


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_bounds_notices_a_version_that_ran_away(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = workspace / "packages/neorl-core/pyproject.toml"
    file.write_text(release.set_version(file.read_text(), Version("0.2.0")))
    assert bounds.main(["--root", str(workspace)]) == 1
    output = capsys.readouterr().out
    assert "neorl-envs bounds neorl-core by '<0.2,>=0.1': it is at 0.2.0" in output
    assert "neorl-deploy[export] bounds neorl-core" in output


def test_bounds_notices_an_upward_need_and_two_opinions(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = workspace / "packages/neorl-envs/pyproject.toml"
    replace(file, '    "equinox>=0.13.8",', '    "equinox>=0.14",\n    "neorl-train>=0.1,<0.2",')
    assert bounds.main(["--root", str(workspace)]) == 1
    output = capsys.readouterr().out
    assert "neorl-envs may not need neorl-train" in output
    assert re.search(r"equinox: .*'>=0.14' in neorl-envs", output)


@pytest.mark.parametrize(
    ("version", "wanted"),
    [("0.1.3", "<0.2,>=0.1"), ("1.4.0", "<2,>=1.4"), ("0.12.0", "<0.13,>=0.12")],
)
def test_compatible_bounds(version: str, wanted: str) -> None:
    assert bounds.compatible(Version(version)) == wanted


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("# Changelog of neorl-core", "# Changes", "the first line"),
        ("## Unreleased\n", "", "the first section"),
        ("2026-01-31", "2026-02-31", "is not of the form"),
        ("### Fixed", "### Mended", "'### Mended'"),
        ("## 0.1.0", "## 0.2.0", "the newest release is 0.2.0"),
        ("- The first functions.\n", "- x\n\n## 0.3.0 - 2026-01-01\n", "descending order"),
    ],
)
def test_changelog_notices(old: str, new: str, fault: str) -> None:
    version = Version("0.1.0")
    assert changelog.faults(CHANGELOG, name="neorl-core", version=version) == []
    assert old in CHANGELOG
    spoiled = CHANGELOG.replace(old, new)
    result = changelog.faults(spoiled, name="neorl-core", version=version)
    assert any(fault in line for line in result), result


def test_release_cuts_the_changelog_and_moves_every_bound(workspace: Path) -> None:
    assert release.main(["neorl-core", "0.2.0", "--root", str(workspace)]) == 0
    assert bounds.main(["--root", str(workspace)]) == 0
    assert changelog.main(["--root", str(workspace)]) == 0
    assert bounds.packages(workspace)["neorl-core"].version == Version("0.2.0")
    train = (workspace / "packages/neorl-train/pyproject.toml").read_text()
    assert '"neorl-core[cli]>=0.2,<0.3"' in train
    assert '"neorl-core[testing]>=0.2,<0.3"' in train
    assert '"neorl-envs>=0.1,<0.2"' in train


def test_release_keeps_older_entries_and_drops_empty_headings() -> None:
    cut = release.cut_changelog(CHANGELOG, Version("0.2.0"), "2026-03-01")
    assert changelog.faults(cut, name="neorl-core", version=Version("0.2.0")) == []
    _, new, old = re.split(r"(?m)^(?=## \d)", cut)
    assert new == "## 0.2.0 - 2026-03-01\n\n### Added\n\n- A new loss.\n\n"
    assert old == CHANGELOG[CHANGELOG.index("## 0.1.0") :]


@pytest.mark.parametrize(
    ("version", "complaint"),
    [("0.0.9", "is older"), ("x", "Invalid version"), ("0.1.0", "is not newer")],
)
def test_release_refuses(
    workspace: Path, capsys: pytest.CaptureFixture[str], version: str, complaint: str
) -> None:
    (workspace / "packages/neorl-core/CHANGELOG.md").write_text(CHANGELOG)
    before = {file: file.read_text() for file in workspace.rglob("*.*") if file.is_file()}
    assert release.main(["neorl-core", version, "--root", str(workspace)]) == 2
    assert complaint in capsys.readouterr().err
    assert before == {file: file.read_text() for file in before}


def test_release_refuses_when_nothing_changed(workspace: Path) -> None:
    replace(workspace / "packages/neorl-core/CHANGELOG.md", "- A thing.\n", "")
    assert release.main(["neorl-core", "0.2.0", "--root", str(workspace)]) == 2


def test_release_checks_a_tag(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nightly, "faults", lambda package: [f"a test of {package} failed", "b"])
    root = ["--root", str(workspace)]
    for tag in ("v1", "neorl-core-v0.9.0", "neorl-core-v0.1.0"):
        assert release.main(["--check-tag", tag, *root]) == 2, tag
    assert release.main(["neorl-core", "0.1.0", *root]) == 0
    assert release.main(["--check-tag", "neorl-core-v0.1.0", *root]) == 2
    monkeypatch.setattr(nightly, "faults", lambda package: [])
    assert release.main(["--check-tag", "neorl-core-v0.1.0", *root]) == 0
    output = capsys.readouterr().out
    assert "a test of neorl-core failed, and 1 more" in output
    assert "a tag is a package's name" in output
    assert "neorl-core is at 0.1.0" in output
    assert "the changelog has no 0.1.0" in output


def case_of(test: str, seconds: float, **setups: float) -> str:
    """A test of a JUnit file, as the workspace's plugin describes it."""
    values = {"compilations": 3, "processor_seconds": seconds, "peak_megabytes": 900, "test": test}
    values |= {f"setup:{name}": taken for name, taken in setups.items()}
    properties = "".join(f'<property name="{k}" value="{v}"/>' for k, v in values.items())
    return f'<testcase name="a"><properties>{properties}</properties></testcase>'


@pytest.fixture
def times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A JUnit file of three tests, one skipped, and an empty file of durations beside it."""
    monkeypatch.setattr(test_times.daily_set, "stored", lambda: read_json(tmp_path))
    monkeypatch.setattr(test_times.daily_set, "DURATIONS", tmp_path / "durations.json")
    write = test_times.daily_set.write
    monkeypatch.setattr(
        test_times.daily_set, "write", lambda stored: write(stored, tmp_path / "durations.json")
    )
    skip = '<testcase classname="tests.test_b" name="c"><skipped message="no"/></testcase>'
    of_core, of_envs = (
        "packages/neorl-core/tests/test_a.py::",
        "packages/neorl-envs/tests/test_b.py::",
    )
    cases = case_of(f"{of_core}x", 1.5, run=4.0), case_of(f"{of_core}y", 0.01), skip
    file = tmp_path / "tests.xml"
    text = "".join([*cases, case_of(f"{of_envs}z", 0.5)])
    file.write_text(f"<testsuites><testsuite>{text}</testsuite></testsuites>")
    return file


def read_json(folder: Path) -> dict:
    file = folder / "durations.json"
    return (
        json.loads(file.read_text())
        if file.is_file()
        else {"tests": {}, "setups": {}, "chosen": {}}
    )


def test_durations_are_stored_and_raised(times: Path) -> None:
    assert test_times.main([str(times)]) == 0
    stored = read_json(times.parent)
    assert stored["tests"] == {
        "packages/neorl-core/tests/test_a.py": {"x": 1.5},
        "packages/neorl-envs/tests/test_b.py": {"z": 0.5},
    }
    assert stored["setups"] == {"run": 4.0}
    times.write_text(times.read_text().replace('"1.5"', '"1.2"').replace('"0.5"', '"0.7"'))
    assert test_times.main(["--raise", str(times)]) == 0
    tests = read_json(times.parent)["tests"]
    assert tests["packages/neorl-core/tests/test_a.py"] == {"x": 1.5}
    assert tests["packages/neorl-envs/tests/test_b.py"] == {"z": 0.7}
    assert test_times.main([str(times.parent / "none.xml")]) == 2


def test_the_cost_of_daily_tests_is_compared_with_the_budget(
    times: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def outcome(**budget: float) -> tuple[int, str]:
        monkeypatch.setattr(test_times.daily_set, "rule", lambda: {"seconds": budget})
        code = test_times.main(["--check", str(times)])
        return code, capsys.readouterr().err

    assert outcome(core=5.51 / test_times.SLACK, envs=1) == (0, "")
    assert outcome(core=5.5 / test_times.SLACK, envs=1)[1].startswith("core: 6 seconds, far over")
    assert outcome(core=9)[1].startswith("envs: 0 seconds, far over the budget of 0")
    monkeypatch.setattr(test_times, "MOST_MEGABYTES", 800)
    assert outcome(core=9, envs=9)[1].startswith("too much memory: 900 of 800 MB")
    times.write_text('<testsuite><testcase classname="tests.t" name="bare"/></testsuite>')
    with pytest.raises(ValueError, match="bare lacks its cost"):
        test_times.main(["--check", str(times)])


@pytest.fixture
def checkout_with_tests(tmp_path: Path) -> Path:
    """A repository with a package and two nightly tests, of which one has two cases."""
    source = tmp_path / "packages/neorl-core/src/neorl_core"
    tests = tmp_path / "packages/neorl-core/tests"
    for folder in (source, tests, tmp_path / "tests/gates"):
        folder.mkdir(parents=True)
    (source / "__init__.py").write_text("x = 1\n")
    (tests / "test_a.py").write_text(
        "import pytest\npytestmark = pytest.mark.nightly\n"
        "@pytest.mark.parametrize('k', [1, 2])\ndef test_two(k): assert k == 1\n"
        "def test_one(): pytest.skip('no time')\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = nightly\n")
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser): parser.addoption('--nightly', action='store_true')\n"
    )
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "Begin"]):
        who = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True)
    return tmp_path


def test_every_environment_of_the_night_has_a_test_to_run() -> None:
    tests = nightly.read_table()
    without = [
        start for start in nightly.ENVIRONMENTS if not any(t.startswith(start) for t in tests)
    ]
    assert not without, "these names are of no test, which therefore runs without what it needs"


def test_the_night_runs_what_is_due_and_keeps_a_table(
    checkout_with_tests: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = checkout_with_tests
    table = root / "tests/gates/nightly.csv"
    monkeypatch.setattr(nightly, "ROOT", root)
    monkeypatch.setattr(nightly, "TABLE", table)
    monkeypatch.setattr(nightly, "CASES", 1)  # each case has a process of its own
    monkeypatch.setattr(nightly, "SCRIPT", root / "nightly.py")
    text = Path(nightly.__file__).read_text()
    own = "ROOT = Path(__file__).resolve().parent\n"
    (root / "nightly.py").write_text(re.sub(r"(?m)^ROOT = .*\n", own, text))
    read, write = nightly.read_table, nightly.write_table
    monkeypatch.setattr(nightly, "read_table", lambda file=table: read(file))
    monkeypatch.setattr(nightly, "write_table", lambda rows, file=table: write(rows, file))
    assert nightly.main([]) == 1
    file = "packages/neorl-core/tests/test_a.py::test_"
    rows = read(table)
    assert [rows[f"{file}{name}"].cases for name in ("one", "two")] == ["1", "2"]
    assert rows[f"{file}one"].result == "skipped: no time"
    assert rows[f"{file}two"].result == f"failed: {file}two[2]"
    assert nightly.faults("neorl-core", table) == [f"{file}two: failed: {file}two[2]"]
    assert nightly.faults("neorl-envs", table)[0].startswith("nightly.csv has no row of neorl-envs")
    capsys.readouterr()
    assert nightly.main(["--list"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [f"{file}two"]
    (root / "packages/neorl-core/src/neorl_core/__init__.py").write_text("x = 2\n")
    assert nightly.main(["--list"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [f"{file}two", f"{file}one"]
    assert nightly.main(["--list", "--missing"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [f"{file}two"]
    assert "sources changed since" in nightly.faults("neorl-core", table)[0]
    # The case that failed is mended: it alone runs again, and the row keeps its commit.
    tests = root / "packages/neorl-core/tests/test_a.py"
    tests.write_text(tests.read_text().replace("k == 1", "k == 2"))
    before = read(table)[f"{file}two"]
    assert nightly.main(["--missing"]) == 0
    assert read(table)[f"{file}two"] == before._replace(result="passed")


def test_sizes_notices_copies_and_warns_of_long_files_and_functions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "packages/neorl-core/src/neorl_core"
    source.mkdir(parents=True)
    body = "\n".join(f"    x{i} = {i}" for i in range(80))
    (source / "_long.py").write_text(f'def long():\n    """Say.\n\n    More."""\n{body}\n')
    (source / "_copy.py").write_text(f"# The same.\ndef other():\n{body}\n")
    (source / "_file.py").write_text("x = 1\n" * 601)
    result = "\n".join(sizes.faults(tmp_path))
    assert "601 lines" not in result
    assert "has 81 lines" not in result
    assert re.search(r"[0-9.]+% of six-line windows are repeated", result)
    assert "_copy.py and packages/neorl-core/src/neorl_core/_long.py" in result
    (source / "_copy.py").unlink()
    assert sizes.main(["--root", str(tmp_path)]) == 0
    warned = "warning: packages/neorl-core/src/neorl_core/_long.py:1: long has 81 lines, more than"
    printed = capsys.readouterr().out
    assert f"{warned} 70\n" in printed
    assert "_file.py: 601 lines, more than 600\n" in printed


def test_sizes_notices_what_is_repeated_in_one_folder_of_many(tmp_path: Path) -> None:
    """A little of the tree, too much of the folder; of learners less is allowed."""
    source = tmp_path / "packages/neorl-agents/src/neorl_agents"
    (source / "algorithms").mkdir(parents=True)
    (source / "policies").mkdir()
    (source / "policies/_own.py").write_text("\n".join(f"z{i} = {i}" for i in range(390)))
    shared = "\n".join(f"x{i} = {i}" for i in range(8))
    for name in "ab":
        own = "\n".join(f"{name}{i} = {i}" for i in range(70))
        (source / f"algorithms/_{name}.py").write_text(f"{own}\n{shared}\n")
    result = sizes.faults(tmp_path)
    place = "packages/neorl-agents/src/neorl_agents/algorithms"
    assert result == [
        f"{place}: 4.1% of six-line windows are repeated, at most 3%:",
        f"  {place}/_a.py and {place}/_b.py: x0 = 0",
    ]
    (source / "algorithms").rename(source / "sampling")
    assert sizes.faults(tmp_path) == []


def test_sizes_lets_a_table_of_laws_be_long(tmp_path: Path) -> None:
    folder = tmp_path / "packages/neorl-core/tests/losses"
    folder.mkdir(parents=True)
    (folder / "table_losses.py").write_text("x = 1\n" * 601)
    assert sizes.warnings(tmp_path) == []
    (folder / "test_losses.py").write_text("x = 1\n" * 601)
    long = "packages/neorl-core/tests/losses/test_losses.py: 601 lines, more than 600"
    assert sizes.warnings(tmp_path) == [f"warning: {long}"]


def test_sizes_counts_code_only() -> None:
    text = '"""Module."""\n\nimport os\n\n\ndef f():\n    """Do."""\n    # why\n    return os\n'
    assert sizes.code_lines(text) == ["def f():", "return os"]


def test_faces_names_what_reaches_into_a_private_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, listed = tmp_path / "packages/neorl-x/tests/room/test_a.py", tmp_path / faces.LIST
    file.parent.mkdir(parents=True)
    listed.parent.mkdir(parents=True)
    file.write_text(
        "import neorl_x.room\nfrom neorl_x._command.main import main\n"
        "from neorl_y._command import main\nfrom neorl_x._job.part import name\n"
        "from neorl_x.room import Public, _module\nfrom neorl_x.room._deep import _name, name\n"
        "from neorl_x.single import helper, shown\nfrom neorl_x._job.part import _hidden\n"
        "def late():\n    import neorl_y._job.part\n"
    )
    single = tmp_path / "packages/neorl-x/src/neorl_x/single.py"
    single.parent.mkdir(parents=True)
    single.write_text('__all__ = ["shown"]\ndef shown(): ...\ndef helper(): ...\n')
    own = ("neorl_x.room._deep", "neorl_x.room._module")
    foreign = ("neorl_x._job.part._hidden", "neorl_x.single.helper", "neorl_y._job.part")
    lines = [f"packages/neorl-x/tests/room/test_a.py {module}" for module in (*own, *foreign)]
    monkeypatch.setattr(faces, "ROOT", tmp_path)
    listed.write_text("\n".join([*lines[1:], "tools/studies/gone.py neorl_x._y"]))
    assert faces.main([]) == 1
    said = capsys.readouterr().out
    assert "test_a.py imports neorl_x.room._deep: take it" in said
    assert "still names tools/studies/gone.py neorl_x._y" in said
    for module in foreign:
        assert f"names packages/neorl-x/tests/room/test_a.py {module}, which is another" in said
    # The list is shortened by the command, never lengthened, and not of another room at all.
    assert faces.main(["--write"]) == 1
    assert listed.read_text().splitlines() == sorted(lines[1:])
    file.write_text("from neorl_x.room import Public, _module\nfrom neorl_x.room import _deep\n")
    listed.write_text("\n".join(lines[:2]))
    assert faces.main([]) == 0


def test_modules_below_an_extra() -> None:
    assert check_isolated.below("neorl_core.testing._laws", ["neorl_core.testing"])
    assert not check_isolated.below("neorl_core.testing_x", ["neorl_core.testing"])


def test_a_module_that_exits_does_not_hide_the_rest(tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{check_isolated.PROBE}"
    completed = subprocess.run(
        [sys.executable, "-c", code], input="leaves broken", capture_output=True, text=True
    )
    first, second, last = completed.stdout.splitlines()
    assert first == "leaves\tSystemExit: 0"
    assert second.startswith("broken\tModuleNotFoundError:")
    assert last == "done"


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        (
            ["packages/neorl-core/src/neorl_core/losses/_conservative.py", "README.md"],
            ["packages/neorl-core/tests/losses"],
        ),
        (
            ["packages/neorl-train/src/neorl_train/_command/main.py"],
            ["packages/neorl-train/tests/command"],
        ),
        (
            # A namespace without a folder of tests, whose package has them elsewhere.
            ["packages/neorl-deploy/src/neorl_deploy/dashboard/__init__.py"],
            ["packages/neorl-deploy/tests"],
        ),
        (
            [
                "packages/neorl-core/tests/losses/test_cql.py",
                "packages/neorl-core/tests/losses/conftest.py",
                "docs/pages/index.md",
                "tools/sizes.py",
            ],
            ["packages/neorl-core/tests/losses", "tests/test_docs.py", "tests/test_tools.py"],
        ),
        (["pyproject.toml"], []),
    ],
)
def test_what_changed_chooses_its_tests(
    changed: list[str], tests: list[str], checkout: Path
) -> None:
    assert check_changed.chosen_tests(changed, checkout) == tests


def test_only_what_the_type_check_covers_is_type_checked() -> None:
    """Pyright takes a path on its command line although its settings leave it out."""
    typed = ["packages/neorl-core/src/neorl_core/a.py", "tools/sizes.py"]
    others = ["packages/neorl-core/tests/test_a.py", "tests/test_b.py"]
    others += ["tools/studies/oracles/c.py"]
    (words,) = (
        words for words in check_changed.commands([*typed, *others]) if "lint:types" in words
    )
    assert words[4:] == typed


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.stem)
def test_every_tool_explains_itself(tool: Path) -> None:
    command = [sys.executable, str(tool), "--help"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0
    assert "usage:" in completed.stdout
    assert completed.stderr == ""


@pytest.mark.parametrize("folder", ["tools", "tools/studies"])
def test_the_page_of_a_folder_names_every_script_and_every_result(
    folder: str, checkout: Path
) -> None:
    """A record that no script writes is one that nobody refreshes."""
    root = checkout / folder
    page = (root / "README.md").read_text()
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("| ")]
    files = {path.relative_to(root) for path in root.rglob("*.*") if path.is_file()}
    files = {path for path in files if folder != "tools" or path.parts[0] != "studies"}
    scripts = {path for path in files if path.suffix == ".py"}
    missing = sorted(str(script) for script in scripts if f"`{script}`" not in page)
    assert missing == []
    named = [word for row in rows for word in re.findall(r"`([\w/.*-]+)`", "".join(row[:2]))]
    assert {Path(word) for word in named if word.endswith(".py")} <= scripts
    results = [word for row in rows for word in re.findall(r"`([\w/.*-]+)`", row[2])]
    found = {word: sorted(root.glob(word)) for word in results if "docs" not in word}
    assert [word for word, result in found.items() if not result and "*" not in word] == []
    stored = {path for path in files if path.suffix not in (".py", ".md", ".pyc")}
    unnamed = stored - {path.relative_to(root) for result in found.values() for path in result}
    assert sorted(map(str, unnamed)) == []


# Types that functions return or take, what only a function of the same file calls, the forms for
# one episode of what learners call for a whole log, and what pages teach to aggregate and compare.
# Then the judgement of control loops (reference/core/loops.md), for the report on a log's loops.
# Last, what core's own laws of functions read of a program.
WITHOUT_A_CALLER = """
    ArxModel CompiledPrograms CorrelatedMean LimitKind LinearModel PairedTest PrioritySample
    SubspaceModel diagonal_gaussian_sample discounted_returns generalised_advantages lazy_names
    median_task_mean n_step_returns optimality_gap pad_graph paired_difference_interval
    probability_of_improvement ring_order segment_td_lambda_returns sync_folder
    tanh_gaussian_latent_log_prob td_lambda_returns StictionCorrelation StictionFit ValveState
    VendorForm equations
"""


def test_core_holds_what_the_packages_call() -> None:
    rows = callers.without_a_caller(callers.ROOT, "core").values()
    alone = {name for _, names in rows for name in names}
    new = alone - set(WITHOUT_A_CALLER.split())
    assert not new, "write a formula with its caller, or name it above with the page that needs it"
