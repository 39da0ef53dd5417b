"""Third stage of an export: a fresh process checks that the exported programs act as trained."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from neorl_deploy._errors import DeployError
from neorl_deploy.bundle._manifest import PARITY_TOLERANCE

PARITY_SECONDS = 300


def prove_parity(bundle: Path) -> dict[str, Any]:
    """Answers a draft's test vectors in a fresh process without the training stack.

    Returns:
        Largest differences relative to a channel's size, and the modules that were kept out.

    Raises:
        DeployError: If the process fails, a difference is above 1e-6 or a flag differs.
    """
    command = [sys.executable, "-m", "neorl_deploy.runtime._parity", str(bundle)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PARITY_SECONDS,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeployError(f"the parity check could not run: {error}") from error
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise DeployError(f"the exported policy does not run in a fresh process: {reason}")
    parity = json.loads(done.stdout.splitlines()[-1])
    if not (parity["worst"] <= PARITY_TOLERANCE and parity["flags_equal"]):
        raise DeployError(
            f"the exported policy differs from the trained one by {parity['worst']:.1e} of a "
            f"channel's size on the test vectors (allowed {PARITY_TOLERANCE:.0e}), flags "
            f"{'equal' if parity['flags_equal'] else 'different'}; nothing was written"
        )
    return {**parity, "tolerance": PARITY_TOLERANCE}
