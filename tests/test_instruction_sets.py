"""Numbers that rest on rounding hold for the instruction sets of other processors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NUMERIC = (
    "packages/neorl-agents/tests/controllers/test_quadratic_program.py",
    "packages/neorl-agents/tests/artefact/test_controller_kinds.py",
    "packages/neorl-core/tests/linear_systems",
    "packages/neorl-safety/tests/filters/test_certify.py",
)


@pytest.mark.nightly
@pytest.mark.parametrize("most", ["SSE4_2", "AVX", "AVX2"])
def test_numeric_tests_pass_with_the_instructions_of_an_older_processor(most: str) -> None:
    """XLA emits no later instructions than these; solvers then round otherwise."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa={most}"
    completed = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *NUMERIC],
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": flags.strip(), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout[-3000:]
