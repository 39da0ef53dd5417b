"""Importing a package computes nothing, writes nothing, starts nothing and pulls no extra."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from check_isolated import below, extras

PROBE = Path(__file__).with_name("import_probe.py")
# What the import of a package may not pull: its extras, and what only commands and tests need.
OPTIONAL = {
    "mlflow",
    "matplotlib",
    "sqlalchemy",
    "alembic",
    "pytest",
    "hypothesis",
    "chex",
    "scipy",
}
FORBIDDEN = {
    "core": {"equinox", "h5py", "gymnasium"},
    "envs": {"matplotlib", "polars", "shtab"},
    "safety": {"h5py", "gymnasium"},
    "agents": {"h5py", "gymnasium"},
    "train": {"matplotlib"},
    "deploy": {"jax", "scipy", "equinox", "h5py", "neorl_core", "neorl_safety", "neorl_agents"},
}


def modules(folder: Path) -> list[str]:
    """Every module of a package that needs no extra."""
    optional = [root for roots in extras(folder).values() for root in roots]
    source = folder / "src"
    files = (file.relative_to(source) for file in sorted(source.rglob("*.py")))
    dotted = [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files]
    return [name for name in dotted if not below(name, optional)]


@pytest.mark.parametrize("name", sorted(FORBIDDEN))
def test_importing_does_no_work(checkout: Path, tmp_path: Path, name: str) -> None:
    folder = checkout / "packages" / f"neorl-{name}"
    command = [sys.executable, "-I", "-B", str(PROBE), f"neorl_{name}", *modules(folder)]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    seen = json.loads(completed.stdout)
    assert seen["effects"] == []
    assert not (OPTIONAL | FORBIDDEN[name]) & {*seen["pulled"]}
    assert list(tmp_path.iterdir()) == []
    assert completed.stderr == ""


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("import os; os.environ['X_PLANTED'] = '1'", "os.putenv"),
        ("open('planted.txt', 'w').close()", "open"),
        ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
        (
            "import threading, time; threading.Thread(target=time.sleep, args=(1,)).start()",
            "starts",
        ),
        ("import jax; jax.numpy.zeros(3)", "starts a JAX backend"),
        ("import jax; jax.config.update('jax_enable_x64', True)", "changes JAX's configuration"),
    ],
)
def test_the_probe_notices_work(tmp_path: Path, line: str, effect: str) -> None:
    (tmp_path / "neorl_planted.py").write_text(f"{line}\n")
    command = [sys.executable, "-B", str(PROBE), "neorl_planted"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    completed = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    seen = json.loads(completed.stdout)["effects"]
    assert any(entry.startswith(effect) for entry in seen), seen
