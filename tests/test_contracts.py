"""The import contracts hold, and the checker that says so would notice if they did not.

Building the graph of imports is what takes time, so all faults are planted into one copy of the
sources and the checker runs over it once.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

# Importer and imported: each breaks a contract. Between the packages, and to libraries that stay
# elsewhere.
BETWEEN = [
    ("neorl_core._internal", "neorl_envs"),
    ("neorl_core._internal", "neorl_agents"),
    ("neorl_envs.datasets", "neorl_safety"),
    ("neorl_safety.constraints", "neorl_agents"),
    ("neorl_agents.networks", "neorl_envs"),
    ("neorl_agents.networks", "neorl_train"),
    ("neorl_train.judging", "neorl_deploy"),
    ("neorl_deploy.bundle", "neorl_train"),
    ("neorl_deploy.bundle", "neorl_envs"),
    ("neorl_core.losses", "equinox"),
    ("neorl_core.infrastructure", "h5py"),
    ("neorl_envs.plants", "mlflow"),
    ("neorl_safety.filters", "orbax.checkpoint"),
    ("neorl_agents.artefact", "mlflow.tracking"),
    ("neorl_deploy.runtime", "orbax"),
]
# Within a package: upward over every border of two layers, and between neighbours of one.
WITHIN = [
    ("neorl_core._internal", "neorl_core._vocabulary"),
    ("neorl_core._vocabulary", "neorl_core.losses"),
    ("neorl_core.losses", "neorl_core.costs"),
    ("neorl_core.losses", "neorl_core.infrastructure"),
    ("neorl_core.costs", "neorl_core.linear_systems"),
    ("neorl_core.linear_systems", "neorl_core.loops"),
    ("neorl_envs.closed_loop", "neorl_envs.recording"),
    ("neorl_envs.datasets", "neorl_envs.ingest"),
    ("neorl_envs.recording", "neorl_envs.plants"),
    ("neorl_envs.ingest", "neorl_envs.inspection"),
    ("neorl_envs.plants", "neorl_envs.wrappers"),
    ("neorl_envs.wrappers", "neorl_envs.interfaces"),
    ("neorl_envs.interfaces", "neorl_envs.scoring"),
    ("neorl_envs.scoring", "neorl_envs.testing"),
    ("neorl_envs.interfaces", "neorl_envs._command"),
    ("neorl_safety.constraints", "neorl_safety.filters"),
    ("neorl_safety.filters", "neorl_safety.monitoring"),
    ("neorl_safety.monitoring", "neorl_safety.guards"),
    ("neorl_safety.guards", "neorl_safety.gymnasium_guard"),
    ("neorl_agents.networks", "neorl_agents.policies"),
    ("neorl_agents.policies", "neorl_agents.learning"),
    ("neorl_agents.learning", "neorl_agents.algorithms"),
    ("neorl_agents.algorithms", "neorl_agents.critics"),
    ("neorl_agents.algorithms", "neorl_agents.artefact"),
    ("neorl_train.runs", "neorl_train.data"),
    ("neorl_train.data", "neorl_train.judging"),
    ("neorl_train.runs", "neorl_train.judging"),
    ("neorl_train.judging", "neorl_train.training"),
    ("neorl_train.choosing", "neorl_train.candidates"),
    ("neorl_train.judging", "neorl_train.pages"),
    ("neorl_train.pages", "neorl_train._job"),
    ("neorl_train._job", "neorl_train._command"),
    ("neorl_train.pages", "neorl_train.judging._evaluate"),
    ("neorl_deploy._errors", "neorl_deploy.bundle"),
    ("neorl_deploy.bundle", "neorl_deploy.runtime"),
    ("neorl_deploy.runtime", "neorl_deploy.export"),
    ("neorl_deploy.export", "neorl_deploy.shadow"),
    ("neorl_deploy.shadow", "neorl_deploy._command"),
]
# A module beside the namespaces of a package whose list of layers is complete.
OUTSIDE = ["neorl_agents", "neorl_core", "neorl_deploy", "neorl_train"]

# What the checker prints, and the chain of every planted import.
Planted = tuple[str, dict[tuple[str, str], str]]


def lint_imports(root: Path, sources: Path) -> subprocess.CompletedProcess[str]:
    """Runs the contract checker over the packages found under another folder."""
    paths = os.pathsep.join(str(folder / "src") for folder in sorted(sources.glob("neorl-*")))
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as run; run()",
    ]
    command += ["--no-cache", "--no-logo", "--config", str(root / "pyproject.toml")]
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )


def place_of(sources: Path, name: str) -> Path:
    """The folder of a package, or the file of a module, in a copy of the sources."""
    package = name.partition(".")[0]
    place = sources / package.replace("_", "-") / "src" / name.replace(".", "/")
    place = place if place.is_dir() else place.with_suffix(".py")
    assert place.exists(), f"there is no {name}"
    return place


@pytest.fixture(scope="module")
def planted(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """What the checker prints of a copy with all faults, and the line in which each stands."""
    sources = tmp_path_factory.mktemp("sources")
    for folder in (checkout / "packages").glob("neorl-*"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(folder / "src", sources / folder.name / "src", ignore=ignore)
    chains = {}
    for importer, imported in BETWEEN + WITHIN:
        place, module = place_of(sources, importer), importer
        if place.is_dir():
            place, module = place / "_planted.py", f"{importer}._planted"
        text = place.read_text() if place.exists() else ""
        text += "" if "def late()" in text else "\n\ndef late() -> None:\n"
        place.write_text(f"{text}    import {imported}\n")
        target = imported
        if imported.startswith("neorl_"):
            place_of(sources, imported)
        else:
            target = imported.partition(".")[0]
        line = text.count("\n") + 1
        chains[importer, imported] = f"{module} -> {target} (l.{line})"
    for package in OUTSIDE:
        (place_of(sources, package) / "_outside.py").touch()
    done = lint_imports(checkout, sources)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout, chains


@pytest.mark.nightly
def test_the_contracts_hold(checkout: Path) -> None:
    done = lint_imports(checkout, checkout / "packages")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("importer", "imported"), BETWEEN + WITHIN)
def test_a_planted_import_breaks_a_contract(planted: Planted, importer: str, imported: str) -> None:
    output, chains = planted
    broken = output.partition("Broken contracts")[2]
    assert chains[importer, imported] in broken, output


@pytest.mark.parametrize("package", OUTSIDE)
def test_a_module_outside_the_namespaces_breaks_a_contract(planted: Planted, package: str) -> None:
    broken = planted[0].partition("Broken contracts")[2]
    assert f"- {package}._outside" in broken, planted[0]


def test_every_contract_is_proved_by_a_planted_fault(checkout: Path, planted: Planted) -> None:
    settings = tomllib.loads((checkout / "pyproject.toml").read_text())["tool"]["importlinter"]
    names = [contract["name"] for contract in settings["contracts"]]
    assert [name for name in names if f"{name} BROKEN" not in planted[0]] == []
