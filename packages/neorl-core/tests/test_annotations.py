"""The shapes and dtypes that the annotations promise hold for every row of the table."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_annotations_hold_while_tracing():
    probe = Path(__file__).parent / "annotations_probe.py"
    result = subprocess.run([sys.executable, str(probe)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
