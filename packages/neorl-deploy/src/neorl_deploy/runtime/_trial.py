"""Runs a bundle's programs in a separate process first, with a time limit.

A sealed program may loop forever, exhaust memory or crash, and none of that may happen in the
process that controls a plant. Started as ``python -m neorl_deploy.runtime._trial BUNDLE DIGEST``.
"""

import os
import subprocess
import sys
from pathlib import Path

from neorl_deploy._errors import BundleError, DeployError
from neorl_deploy.bundle._read import Bundle, read_bundle

TIME_LIMIT = 120.0
"""Seconds allowed for compiling the programs, a fresh carry and all test vectors."""

_passed_digests: set[str] = set()
"""Digests of the bundles whose programs have completed in time since this process began."""


def require_trial(bundle: Bundle, seconds: float = TIME_LIMIT) -> None:
    """Raises unless another process runs the programs of a bundle to completion.

    That process creates a fresh carry and answers all test vectors; whether the answers are right
    is not checked here. A bundle is tried once per process.

    Args:
        bundle: A verified bundle.
        seconds: Time limit.

    Raises:
        BundleError: If the programs exceed the time limit, crash, or cannot be run.
    """
    if bundle.digest in _passed_digests:
        return
    command = [sys.executable, "-m", "neorl_deploy.runtime._trial", str(bundle.path), bundle.digest]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, errors="replace"
        )
    except subprocess.TimeoutExpired as error:
        raise BundleError(
            f"{bundle.path}: its programs did not answer the test vectors within {seconds:g} s in "
            "a process of their own; do not run it"
        ) from error
    except OSError as error:
        raise BundleError(f"{bundle.path}: its programs could not be tried: {error}") from error
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise BundleError(
            reason
            if done.returncode == 2
            else f"{bundle.path}: its programs crash ({reason:.200}); fetch the bundle again"
        )
    _passed_digests.add(bundle.digest)


def note_trial(bundle: Bundle) -> None:
    """Records that the parity check of an exported bundle was its trial in another process."""
    _passed_digests.add(bundle.digest)


def _try(path: str, digest: str) -> None:
    from neorl_deploy.runtime._runtime import Runtime

    bundle = read_bundle(Path(path), proven=False)
    if bundle.digest != digest:
        raise BundleError(f"{path} was changed while it was loaded")
    runtime = Runtime(bundle)
    for section in ("single", "sequence"):
        runtime.answers(section)


if __name__ == "__main__":
    try:
        _try(*sys.argv[1:])
    except DeployError as error:
        print(error, file=sys.stderr)
        sys.stderr.flush()
        os._exit(2)
