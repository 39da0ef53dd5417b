"""The wheel of neorl-core alone, in a fresh environment: the README and a foreign training loop."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "packages" / "neorl-core" / "README.md").read_text()
# Ten lines of somebody else's trainer: values by expectile regression, with a slow target.
LOOP = """
import jax, jax.numpy as jnp
from neorl_core import losses, targets
(reward, state), ended = jax.random.normal(jax.random.key(0), (2, 512)) + 1, jnp.zeros(512, bool)
def loss(theta, slow):
    target = targets.td_target(reward, slow * jnp.ones_like(state), ended, discount=0.5)
    each = losses.expectile_loss(theta * jnp.ones_like(state), target, expectile=0.7)
    return losses.masked_mean(each, jnp.arange(512) < 500)
(slope, theta, slow) = jax.jit(jax.grad(loss)), jnp.zeros(()), jnp.zeros(())
for _ in range(300):
    theta, slow = theta - 0.5 * slope(theta, slow), targets.polyak(slow, theta, tau=0.1)
"""
CHECK = """
import neorl_core, pathlib
assert "site-packages" in neorl_core.__file__, neorl_core.__file__
best = targets.td_target(reward, slow * jnp.ones_like(state), ended, discount=0.5)[:500]
gap = best - theta
balance = jnp.where(gap > 0, 0.7, 0.3) * gap
assert abs(float(balance.mean())) < 1e-2, balance.mean()
assert float(theta) > float(best.mean())
"""


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory, clone: Path) -> tuple[Path, Path]:
    """A fresh environment with the wheel and what it declares, and an empty folder to work in."""
    place = tmp_path_factory.mktemp("outside")
    subprocess.run([sys.executable, "-m", "venv", str(place / "venv")], check=True)
    python = place / "venv" / "bin" / "python"
    (wheel,) = (clone / "dist").glob("neorl_core-*.whl")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(python), "-m", "pip", "install", "-q", str(wheel)]
    subprocess.run(command, check=True, env=kept, cwd=place)
    (place / "empty").mkdir()
    return python, place / "empty"


def run(python: Path, folder: Path, code: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    completed = subprocess.run(
        [str(python), "-W", "error", "-c", code],
        cwd=folder, env=kept, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr


def test_the_readme_and_a_foreign_training_loop_of_ten_lines_run_on_the_wheel(
    outside: tuple[Path, Path],
) -> None:
    """One test, so that two workers do not make the environment twice."""
    (first, *_) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(first.strip().splitlines()) <= 6
    run(*outside, first)
    assert len(LOOP.strip().splitlines()) == 10
    run(*outside, LOOP + CHECK)
