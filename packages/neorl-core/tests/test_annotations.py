"""The shapes and dtypes that the annotations promise hold for every row of the table."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.nightly
def test_annotations_hold_while_tracing():
    script = Path(__file__).parent / "trace_annotations.py"
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
