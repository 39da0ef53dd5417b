"""The workspace says each thing once, or the places where it says it agree."""

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import bounds
import changelog
import constraints
import sizes

TOP_LEVEL = {
    *("CITATION.cff", "LICENSE", "README.md", "pyproject.toml"),
    *("docs", "packages", "tests", "tools"),
}
PINS = "tools/constraints.txt"
NAMES = ["agents", "core", "deploy", "envs", "safety", "train"]


@pytest.fixture(scope="module")
def settings(checkout: Path) -> dict[str, Any]:
    return tomllib.loads((checkout / "pyproject.toml").read_text())


def test_the_top_level_holds_exactly_what_it_should(checkout: Path) -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    entries = {line.split("/")[0] for line in listed.stdout.splitlines()}
    assert {entry for entry in entries if not entry.startswith(".")} == TOP_LEVEL
    assert {".ci", ".github", ".gitignore"} <= entries


def test_every_list_of_packages_is_the_folder_list(
    settings: dict[str, Any], packages: list[Path], checkout: Path
) -> None:
    assert [folder.name for folder in packages] == [f"neorl-{name}" for name in NAMES]
    hatch, modules = settings["tool"]["hatch"]["envs"], {f"neorl_{name}" for name in NAMES}
    for environment in ("default", "hatch-test"):
        members = hatch[environment]["workspace"]["members"]
        paths = {entry if isinstance(entry, str) else entry["path"] for entry in members}
        assert paths == {f"packages/neorl-{name}" for name in NAMES}, environment
    assert {*hatch["pkg"]["matrix"][0]["package"]} == {*NAMES}
    assert settings["tool"]["uv"]["workspace"]["members"] == ["packages/*"]
    sources = settings["tool"]["uv"]["sources"]
    assert sources == {f"neorl-{name}": {"workspace": True} for name in NAMES}
    assert {*settings["tool"]["importlinter"]["root_packages"]} == modules
    assert {*settings["tool"]["ruff"]["lint"]["isort"]["known-first-party"]} == modules
    assert {*settings["tool"]["coverage"]["run"]["source_pkgs"]} == modules
    assert {*bounds.BELOW} == {folder.name for folder in packages}
    workflow = yaml.safe_load((checkout / ".github/workflows/ci.yml").read_text())
    matrix = workflow["jobs"]["package"]["strategy"]["matrix"]
    assert {*matrix["package"]} == {*NAMES}
    assert matrix["python"] == ["3.11", "3.12", "3.13"]


@pytest.mark.parametrize("name", NAMES)
def test_a_package_is_complete(checkout: Path, name: str) -> None:
    folder, module = checkout / "packages" / f"neorl-{name}", f"neorl_{name}"
    for entry in ("README.md", "CHANGELOG.md", "LICENSE", f"src/{module}/py.typed"):
        assert (folder / entry).is_file(), entry
    assert list((folder / "tests").rglob("test_*.py")), "no tests"
    licence = (folder / "LICENSE").read_text()
    assert licence == (checkout / "LICENSE").read_text()
    assert "Apache License" in licence
    assert "Copyright the neorl contributors" in licence
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == folder.name
    assert project["requires-python"] == ">=3.11"
    assert project["license"] == "Apache-2.0"
    assert project["authors"] == [{"name": "the neorl contributors"}]
    assert "testing" in project["optional-dependencies"]


def test_bounds_changelogs_and_sizes_are_in_order(checkout: Path) -> None:
    assert bounds.main(["--root", str(checkout)]) == 0
    assert changelog.main(["--root", str(checkout)]) == 0
    assert sizes.faults(checkout) == []


def test_heavy_distributions_stay_where_they_belong(checkout: Path) -> None:
    heavy = {"mlflow", "mlflow-skinny", "orbax-checkpoint", "sqlalchemy", "alembic"}
    needs = {
        (name, extra): {r.name for other, r in package.requirements if other == extra}
        for name, package in bounds.packages(checkout).items()
        for extra in {other for other, _ in package.requirements}
    }
    for (name, extra), names in needs.items():
        assert name == "neorl-train" or not names & heavy, f"{name}[{extra}]"
    assert not [place for place, names in needs.items() if "flax" in names]
    assert needs["neorl-deploy", ""] == {"numpy"}
    assert needs["neorl-train", ""] & heavy == {"orbax-checkpoint"}


def test_environments_install_under_the_constraints(settings: dict[str, Any]) -> None:
    hatch = settings["tool"]["hatch"]["envs"]
    for name, environment in hatch.items():
        if name == "constraints" or environment.get("template"):
            continue
        assert environment["installer"] == "uv", name
        if name in constraints.OWN_PINS:
            continue
        committed = "{env:NEORL_CONSTRAINTS:{root:uri}/tools/constraints.txt}"
        assert environment["env-vars"]["UV_CONSTRAINT"] == committed, name


def test_the_demo_of_the_readme_is_its_script(settings: dict[str, Any], checkout: Path) -> None:
    demo = settings["tool"]["hatch"]["envs"]["default"]["scripts"]["demo"]
    assert demo == "python tools/demo.py {args}"
    assert "python -m hatch run demo\n" in (checkout / "README.md").read_text(encoding="utf-8")


def test_ci_opens_a_bundle_of_the_oldest_jax_with_the_newest(checkout: Path) -> None:
    deploy = checkout / "packages/neorl-deploy"
    extras = tomllib.loads((deploy / "pyproject.toml").read_text())["project"]
    (needed,) = [need for need in extras["optional-dependencies"]["jax"] if need.startswith("jax>")]
    oldest = re.findall(r">=([\d.]+)", needed)[0]
    kept = deploy / "tests/bundle/kept" / f"jax-{oldest}"
    manifest = json.loads((kept / "manifest.json").read_text())
    assert manifest["provenance"]["versions"]["jax"] == oldest
    opened = (deploy / "tests/bundle/test_kept.py").read_text()
    assert f'"kept" / "jax-{oldest}"' in opened
    assert "nightly" not in opened  # so it runs with the tests of the package
    pins = re.findall(r"(?m)^jax==([\d.]+) ;.*>= '(3\.\d+)'", Path(checkout, PINS).read_text())
    ((newest, python),) = pins
    assert numbers(newest) > numbers(oldest)
    workflows = checkout / ".github/workflows"
    package = yaml.safe_load((workflows / "ci.yml").read_text())["jobs"]["package"]
    matrix = package["strategy"]["matrix"]
    assert "deploy" in matrix["package"]
    assert any(numbers(version) >= numbers(python) for version in matrix["python"])
    assert package["steps"][-1]["run"].endswith("pkg.${{ matrix.package }}:test")
    free = yaml.safe_load((workflows / "nightly.yml").read_text())["jobs"]["newest"]
    assert free["env"]["NEORL_CONSTRAINTS"] == os.devnull  # the newest release of that day
    assert max(free["strategy"]["matrix"]["python"], key=numbers) == matrix["python"][-1]
    assert free["steps"][-1]["run"] == "python -m hatch test"


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def test_workflows_run_the_same_scripts_with_pinned_actions_and_few_rights(
    settings: dict[str, Any], checkout: Path
) -> None:
    environments = settings["tool"]["hatch"]["envs"]
    for file in sorted((checkout / ".github/workflows").glob("*.yml")):
        workflow = yaml.safe_load(file.read_text())
        assert workflow["permissions"] == {"contents": "read"}, file.name
        assert "group" in workflow["concurrency"], file.name
        for name, job in workflow["jobs"].items():
            assert job["timeout-minutes"] <= 180, name
            for step in job["steps"]:
                if "uses" in step:
                    assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"]), step
                scripts = re.findall(r"hatch run ([\w-]+)[^:\n]*:(\w+)", step.get("run", ""))
                for environment, script in scripts:
                    assert script in environments[environment]["scripts"], step


def test_the_whole_check_is_a_shell_script_that_parses(checkout: Path) -> None:
    script = checkout / ".ci/run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)
    text = script.read_text()
    assert "python -m hatch test\n" in text
    quiet = text.replace("bash -n", "").replace("tail -n", "").replace("sed -n", "")
    assert "-n " not in quiet


def test_the_files_where_changes_begin_exist(checkout: Path) -> None:
    rows = re.findall(
        r"^\| [a-z].* \| (.*) \|$", (checkout / ".github/CONTRIBUTING.md").read_text(), re.M
    )
    paths = re.findall(r"`([a-z]+)/([\w/.]+)`", " ".join(rows))
    assert len(paths) >= 10
    for package, path in paths:
        assert (checkout / f"packages/neorl-{package}/src/neorl_{package}/{path}").exists(), path
